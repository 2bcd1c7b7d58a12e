"""One undo log that puts everything back: classes swapped under living instances, attributes, keys of mappings."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from typing import Any

import torch

from onnxpatch.errors import RestoreError
from onnxpatch.patching.generated import MISSING, generated, set_class, specialise, without


class UndoLog:
    """What was changed, in order; `undo` puts it back in reverse, all of it, whatever fails on the way.

    Every step may be done twice: one that a KeyboardInterrupt stopped is done again, then the interrupt goes on.

    One log belongs to one `patched(...)`; logs of nested contexts may be undone in any order.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._made: dict[tuple[type, tuple[type, ...]], type] = {}
        self._unmade: dict[type, type] = {}

    def __len__(self) -> int:
        return len(self._undo)

    def specialise(self, module: torch.nn.Module, *mixins: type) -> None:
        """Put `mixins` in front of the class of `module`."""
        cls = type(module)
        made = self._made.get((cls, mixins))
        if made is None:
            made = self._made[cls, mixins] = specialise(cls, *mixins, owner=self)
        self._undo.append((self._unspecialise, (module,)))
        set_class(module, made)

    def set_attr(self, owner: object, name: str, value: object) -> None:
        """Set an instance attribute past any `__setattr__` of the owner's."""
        self.set_item(vars(owner), name, value)

    def set_item(self, mapping: MutableMapping[Any, Any], key: object, value: object) -> None:
        """Set a key of a mapping; its place in the order is kept when it was there."""
        self._undo.append((_put_item, (mapping, key, mapping.get(key, MISSING))))
        mapping[key] = value

    def call(self, undo: Callable[[], None]) -> None:
        """Have `undo` called when its turn comes."""
        self._undo.append((undo, ()))

    def items_before(self, mapping: MutableMapping[Any, Any]) -> dict[Any, Any]:
        """What the keys of a mapping held before this log's owner set them."""
        steps = (arguments for step, arguments in reversed(self._undo) if step is _put_item)
        return {key: before for held, key, before in steps if held is mapping}

    def adopt(self, module: torch.nn.Module, made: torch.nn.Module, copied: Callable[[Any], Any]) -> None:
        """Take patches out of `made`, a copy of `module`, when they are taken out of that."""
        attributes = vars(module), vars(made)
        for name, before in self.items_before(attributes[0]).items():
            if name not in attributes[1]:  # the class has a `__getstate__` of its own
                attributes[1][name] = copied(attributes[0][name])
            self._undo.append((_put_item, (attributes[1], name, before)))
        self._undo.append((self._unspecialise_copy, (weakref.ref(made),)))

    def undo(self) -> None:
        """Put everything back; raises RestoreError at the end if some of it could not be."""
        failures: list[tuple[str, BaseException]] = []
        interrupt: BaseException | None = None
        while self._undo:
            step, arguments = self._undo[-1]  # taken off when it is done: an interrupted one is done again
            try:
                step(*arguments)
            except Exception as error:
                failures.append((getattr(step, "__name__", repr(step)), error))
            except BaseException as error:
                if interrupt is None:
                    interrupt = error
                    continue
            self._undo.pop()
        self._made.clear()
        self._unmade.clear()
        if failures:
            listed = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failures)
            raise RestoreError(f"{len(failures)} step(s) could not be undone: {listed}") from failures[0][1]
        if interrupt is not None:
            raise interrupt

    def _unspecialise(self, module: torch.nn.Module) -> None:
        cls = type(module)
        if generated(cls) is None:
            self._unspecialise_under(cls)
            return
        bare = self._unmade.get(cls)
        if bare is None:
            bare = self._unmade[cls] = without(cls, self)
        set_class(module, bare)

    def _unspecialise_copy(self, reference: weakref.ref[torch.nn.Module]) -> None:
        made = reference()
        if made is not None:
            self._unspecialise(made)

    def _unspecialise_under(self, cls: type) -> None:
        # A parametrization registered meanwhile has put a class of its own in front of the generated one.
        cls.__bases__ = tuple(without(base, self) for base in cls.__bases__)


def _put_item(mapping: MutableMapping[Any, Any], key: object, before: object) -> None:
    if before is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = before
