"""`UndoLog`: changes classes of living modules, attributes and dict entries, and undoes all of it.

log.specialise(layer, StandIn)      layer.__class__ = a generated subclass of its class
log.set_attr(layer, "table", t)
log.undo()                          the attribute first, then the class

One thread at a time may change a model: `claim`. torch's exporters put FakeTensors into the modules that they run, so
two exports of one model at the same time disturb each other, with or without patches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.errors import InputError, RestoreError
from onnxpatch.patching.generated import MISSING, generated, set_class, specialise, without
from onnxpatch.process import process_lock, release


class UndoLog:
    """The changes of one `patched(...)`, in order. `undo` takes them back in reverse order, all of them.

    A step that fails does not stop the others. Every step may be done twice: if a KeyboardInterrupt stops one, it is
    done again before the interrupt goes on. Logs of nested contexts may be undone in any order.
    """

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        # Until `undo`: modules of one class get one generated class, and `type(a) is type(b)` stays true between them.
        self._made: dict[tuple[type, tuple[type, ...]], type] = {}
        self._unmade: dict[type, type] = {}

    def specialise(self, module: torch.nn.Module, *mixins: type) -> None:
        """Put `mixins` in front of the class of `module`."""
        cls = type(module)
        made = self._made.get((cls, mixins))
        if made is None:
            made = self._made[cls, mixins] = specialise(cls, *mixins, owner=self)
        self._undo.append((self._unspecialise, (module,)))
        set_class(module, made)

    def set_attr(self, owner: object, name: str, value: object) -> None:
        """Set an instance attribute without calling `__setattr__` of the owner."""
        attributes = vars(owner)
        self._undo.append((_put_item, (attributes, name, attributes.get(name, MISSING))))
        attributes[name] = value

    def call(self, undo: Callable[[], None]) -> None:
        """Call `undo` when this log is undone."""
        self._undo.append((undo, ()))

    def items_before(self, mapping: MutableMapping[Any, Any]) -> dict[Any, Any]:
        """The former values of the keys that this log has set in a mapping."""
        steps = (arguments for step, arguments in reversed(self._undo) if step is _put_item)
        return {key: before for held, key, before in steps if held is mapping}

    def adopt(self, module: torch.nn.Module, made: torch.nn.Module, copied: Callable[[Any], Any]) -> None:
        """Restore `made`, a copy of `module`, when `module` is restored."""
        attributes = vars(module), vars(made)
        for name, before in self.items_before(attributes[0]).items():
            if name not in attributes[1]:  # a `__getstate__` of the class left the attribute out
                attributes[1][name] = copied(attributes[0][name])
            self._undo.append((_put_item, (attributes[1], name, before)))
        # Weak: a copy that nobody else refers to need not live until the original is restored.
        self._undo.append((self._unspecialise_copy, (weakref.ref(made),)))

    def undo(self) -> None:
        """Take every change back. Raises RestoreError at the end if some could not be."""
        failures: list[tuple[str, BaseException]] = []
        interrupt: BaseException | None = None
        while self._undo:
            step, arguments = self._undo[-1]  # removed after it is done: an interrupted step is done again
            try:
                step(*arguments)
            except Exception as error:
                failures.append((getattr(step, "__name__", repr(step)), error))
            except BaseException as error:
                # The interrupted step is done again. If it is interrupted once more, it is given up.
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
        # As in `specialise`: modules of one class get one class back, even under the layers of an outer log.
        bare = self._unmade.get(cls)
        if bare is None:
            bare = self._unmade[cls] = without(cls, self)
        set_class(module, bare)

    def _unspecialise_copy(self, reference: weakref.ref[torch.nn.Module]) -> None:
        made = reference()
        if made is not None:
            self._unspecialise(made)

    def _unspecialise_under(self, cls: type) -> None:
        # torch.nn.utils.parametrize, called while patched, puts a class in front of the generated one.
        bases = tuple(without(base, self) for base in cls.__bases__)
        # A module that refused its generated class still has the written one, whose bases may not be settable.
        if bases != cls.__bases__:
            cls.__bases__ = bases


def _put_item(mapping: MutableMapping[Any, Any], key: object, before: object) -> None:
    if before is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = before


@dataclass
class _Claim:
    owner: threading.Thread
    # One entry for each `patched` of the owner: contexts nest.
    logs: set[int] = field(default_factory=set)


_lock = process_lock()
# By id, since a class may define __eq__ without __hash__. An id stays valid while the model is patched.
_claims: dict[int, _Claim] = {}


def claim(model: torch.nn.Module, log: UndoLog) -> None:
    """Mark `model` as patched by this thread until `log` is undone. Raises InputError if another thread patched it."""
    here = threading.current_thread()
    with _lock:
        held = _claims.get(id(model))
        # A thread that has ended can restore nothing any more: its claim does not count.
        if held is not None and held.owner is not here and held.owner.is_alive():
            raise InputError(
                f"the {type(model).__name__} is patched by thread {held.owner.name!r} at the moment. Two exports of "
                "one model at the same time disturb each other: let that thread restore it first, or export "
                "copy.deepcopy(model)"
            )
        # Noted before it is done: if an interrupt comes here, the claim is still given up.
        log.call(lambda: _release(id(model), id(log)))
        taken = _claims.setdefault(id(model), _Claim(here))
        taken.owner = here
        taken.logs.add(id(log))


def _release(model: int, log: int) -> None:
    with _lock:
        held = _claims.get(model)
        if held is not None:
            held.logs.discard(log)
            if not held.logs:
                del _claims[model]
    release(_lock)
