"""Swapping classes under living instances, and one undo log that puts everything back."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.errors import RestoreError

_GENERATED = "__onnxpatch_generated__"
_MISSING = object()


@dataclass(frozen=True)
class Generated:
    """How a generated class was made: the class it stands in front of, and the layers laid over that, oldest first."""

    base: type
    layers: tuple[tuple[object, tuple[type, ...]], ...]


def generated(cls: type) -> Generated | None:
    """How `cls` was generated, or None for a class that somebody wrote."""
    return vars(cls).get(_GENERATED)


def class_before(cls: type) -> type:
    """The class under the generated ones."""
    made = generated(cls)
    return made.base if made else cls


def mixins_of(cls: type) -> tuple[type, ...]:
    """Every mixin in force on `cls`, the newest first."""
    made = next((found for base in cls.__mro__ if (found := generated(base))), None)
    return tuple(mixin for _, mixins in reversed(made.layers) for mixin in mixins) if made else ()


def specialise(cls: type, *mixins: type, owner: object = None) -> type:
    """A subclass of `cls` with `mixins` in front, under the name, qualname and module of `cls`.

    Keeps identity, hooks, aliases and state_dict of an instance whose `__class__` is set to it. `owner` marks the
    layer, so that `without` can take it away again whatever was laid over it since.
    """
    made = generated(cls) or Generated(cls, ())
    return _generate(Generated(made.base, (*made.layers, (owner, mixins))))


def without(cls: type, owner: object) -> type:
    """`cls` less the layers of `owner`: the written class itself when none is left."""
    made = generated(cls)
    if made is None:
        return cls
    layers = tuple(layer for layer in made.layers if layer[0] is not owner)
    return _generate(Generated(made.base, layers)) if layers else made.base


class _Quiet:
    """First base of every generated class, so that the user's `__init_subclass__` (registries, options) is not run."""

    def __init_subclass__(cls, **kwargs: object) -> None: ...


def _generate(made: Generated) -> type:
    bases = [mixin for _, mixins in reversed(made.layers) for mixin in mixins]
    names = {name: getattr(made.base, name) for name in ("__module__", "__qualname__", "__doc__")}
    # No annotations of its own: torch.jit.script reads the class's attribute types through them.
    names["__annotations__"] = dict(getattr(made.base, "__annotations__", {}))
    return type(made.base)(made.base.__name__, (_Quiet, *dict.fromkeys(bases), made.base), {**names, _GENERATED: made})


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
        module.__class__ = made

    def set_attr(self, owner: object, name: str, value: object) -> None:
        """Set an instance attribute past any `__setattr__` of the owner's."""
        self.set_item(vars(owner), name, value)

    def set_item(self, mapping: MutableMapping[Any, Any], key: Any, value: object) -> None:
        """Set a key of a mapping; its place in the order is kept when it was there."""
        self._undo.append((_put_item, (mapping, key, mapping.get(key, _MISSING))))
        mapping[key] = value

    def call(self, undo: Callable[[], None]) -> None:
        """Have `undo` called when its turn comes."""
        self._undo.append((undo, ()))

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
        module.__class__ = bare

    def _unspecialise_under(self, cls: type) -> None:
        # A parametrization registered meanwhile has put a class of its own in front of the generated one.
        cls.__bases__ = tuple(without(base, self) for base in cls.__bases__)


def _put_item(mapping: MutableMapping[Any, Any], key: Any, before: object) -> None:
    if before is _MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = before
