"""Notes the contents of plain Python objects at one moment, and restores them: containers, attributes, slots, arrays.

A forward may count in an object of its own, or append to a cache that it was given. Objects of the user's classes and
of libraries are followed, those of torch and of Python's own library are not: they belong to others as well.

A model has some thousand containers, and they are put back after every forward: that nothing changed is asked of all of
them together, without a loop in Python.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import is_
from typing import Any, TypeVar

import numpy as np
import torch

MISSING = object()
"""Stands for an attribute that was not there, or is no longer."""

_DEEPEST = 8
_MOST = 200_000  # objects that are followed
# Larger arrays are not copied, and so not restored.
_ARRAY_BYTES = 16 * 1024 * 1024
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, torch.dtype, torch.device, torch.Size)
# SimpleNamespace and argparse.Namespace are mere holders of the user's attributes.
_NOT_FOLLOWED = {*sys.stdlib_module_names, "torch", "numpy", "onnxpatch"} - {"types", "argparse"}


def copied_value(value: object) -> object:
    """A copy of an argument, so that a model may write into it. What cannot be copied is given as it is."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, _PLAIN):
        return value
    held, restore = objects_held([value])
    # copy.deepcopy refuses tensors in the middle of an autograd graph.
    known = {id(one): one.detach().clone() for one in held if one.requires_grad and not one.is_leaf}
    try:
        with torch.no_grad():
            return copy.deepcopy(value, known)
    except Exception:  # a lock, a file: whatever the object's classes raise
        # A method of the user's that copying called may have changed the object before another one failed.
        restore()
        return value


def each_once(change: Callable[[Any], Any], values: Iterable[object]) -> list[Any]:
    """`change` of each value; a tensor that is given twice stays one."""
    known: dict[int, Any] = {}
    return [known[id(one)] if id(one) in known else known.setdefault(id(one), change(one)) for one in values]


def objects_held(
    roots: Iterable[object], apart: Iterable[object] = ()
) -> tuple[list[torch.Tensor], Callable[[], None]]:
    """(the tensors in some objects and in all that they refer to, what puts back the contents of all others).

    apart: objects whose attributes somebody else puts back; their slots are kept all the same.
    """
    held = _HeldObjects(roots, apart)
    return held.tensors, held.restore


class _HeldObjects:
    """See `objects_held`. The values of tensors are not copied."""

    def __init__(self, roots: Iterable[object], apart: Iterable[object]) -> None:
        self.tensors: list[torch.Tensor] = []
        attributes: list[Any] = []
        containers: list[Any] = []
        self._slots: list[tuple[Any, Any, Any]] = []
        self._slots_by_class: dict[type, list[Any]] = {}
        self._arrays: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self._generators: list[tuple[torch.Generator, torch.Tensor]] = []
        # The objects themselves are kept too, so that none of these ids is used again.
        self._seen: dict[int, object] = {}
        for one in apart:
            self._seen[id(one)] = one
            self._note_slots(one)
        waiting = [(root, 0) for root in roots]
        # A model may refer to a whole data set: what is beyond the limit is not restored.
        while waiting and len(self._seen) < _MOST:
            value, depth = waiting.pop()
            if isinstance(value, _PLAIN) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            below = self._note(value, attributes, containers)
            if depth < _DEEPEST:
                waiting += [(one, depth + 1) for one in below]
        self._restore_attributes, self._restore_containers = map(containers_held, (attributes, containers))

    def _note(self, value: object, attributes: list[object], containers: list[object]) -> Iterable[object]:
        """Note the contents of `value`, attributes and containers in these lists; returns the objects in it."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        elif isinstance(value, torch.Generator):
            self._generators.append((value, value.get_state()))
        elif isinstance(value, np.ndarray):
            if value.nbytes <= _ARRAY_BYTES and not value.dtype.hasobject:
                self._arrays.append((value, value.copy()))
        elif isinstance(value, dict):
            # Past an `items` that a subclass has overridden.
            containers.append(value)
            return [*dict.values(value), *self._note_attributes(value, attributes)]
        elif isinstance(value, list | deque | set):
            containers.append(value)
            return [] if isinstance(value, set) else [*value, *self._note_attributes(value, attributes)]
        elif isinstance(value, tuple):
            return value
        elif not isinstance(value, torch.jit.ScriptModule) and (
            isinstance(value, torch.nn.Module) or type(value).__module__.partition(".")[0] not in _NOT_FOLLOWED
        ):
            return self._note_attributes(value, attributes)
        return ()

    def _note_attributes(self, value: object, noted: list[object]) -> list[object]:
        attributes = getattr(value, "__dict__", None)
        slots = self._note_slots(value)
        if not isinstance(attributes, dict):
            return slots
        noted.append(attributes)
        return [*attributes.values(), *slots]

    def _note_slots(self, value: object) -> list[object]:
        slots = self._slots_by_class.get(type(value))
        if slots is None:
            slots = self._slots_by_class[type(value)] = list(_slots_of(type(value)))
        found = [(slot, slot.__get__(value)) for slot in slots if _filled(slot, value)]
        empty = [(slot, MISSING) for slot in slots if not _filled(slot, value)]
        self._slots += [(value, slot, held) for slot, held in (*found, *empty)]
        return [held for _, held in found]

    def restore(self) -> None:
        """Put everything back; contents of tensors are left to others."""
        self._restore_attributes()
        for value, slot, before in self._slots:
            if before is not MISSING:
                slot.__set__(value, before)
            elif _filled(slot, value):
                slot.__delete__(value)
        self._restore_containers()
        for array, values in self._arrays:
            if array.flags.writeable and not np.array_equal(array, values):
                np.copyto(array, values)
        for generator, state in self._generators:
            generator.set_state(state)


def _slots_of(cls: type) -> Iterator[object]:
    """The descriptors of `__slots__`, those of base classes included.

    Classes written in C have descriptors of the same kind, which may be read only: SimpleNamespace's `__dict__`.
    """
    for base in cls.__mro__:
        if "__slots__" in vars(base) and base.__module__.partition(".")[0] not in _NOT_FOLLOWED:
            for value in vars(base).values():
                if type(value).__name__ == "member_descriptor":
                    yield value


def _filled(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


_AT_ONCE = 64
_BUILTIN = (OrderedDict, dict, list, deque, set)
_Pair = TypeVar("_Pair")


def containers_held(containers: Iterable[Any]) -> Callable[[], None]:
    """Puts back what dicts, lists, deques and sets hold now."""
    return _HeldContainers(containers).restore


class _HeldContainers:
    def __init__(self, containers: Iterable[Any]) -> None:
        # Most are empty, such as a module's dicts of hooks: one look at their lengths says whether any was filled.
        self._empty: list[Any] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._sequences: list[tuple[Any, list[Any]]] = []
        self._sets: list[tuple[set[Any], set[Any]]] = []
        for container in containers:
            if type(container) in _BUILTIN and not container:
                self._empty.append(container)
            elif isinstance(container, dict):
                self._dicts.append((container, dict(dict.items(container))))
            elif isinstance(container, set):
                self._sets.append((container, set(container)))
            else:
                self._sequences.append((container, list(container)))

    def restore(self) -> None:
        if any(map(len, self._empty)):
            for container in self._empty:
                container.clear()
        for some_dicts in _groups(self._dicts):
            if not _same_dicts(some_dicts):
                for now, before in some_dicts:
                    _bind_again(now, before)
        for some_sequences in _groups(self._sequences):
            if not _same_items(some_sequences):
                for sequence, items in some_sequences:
                    _refill(sequence, items)
        for held, members in self._sets:
            if held != members:
                # The same object: other code may refer to it.
                held.clear()
                held.update(members)


def _groups(pairs: list[_Pair]) -> Iterator[list[_Pair]]:
    """So many at once that the loop over them costs little, and so few that one change does not have all looked at."""
    return (pairs[start : start + _AT_ONCE] for start in range(0, len(pairs), _AT_ONCE))


def _same_dicts(pairs: Sequence[tuple[dict[Any, Any], dict[Any, Any]]]) -> bool:
    """Whether the dicts hold the very keys and values that they held, in the same order."""
    if not _same_items(pairs):
        return False
    now, before = (map(dict.values, dicts) for dicts in zip(*pairs, strict=True))
    return all(map(is_, chain.from_iterable(now), chain.from_iterable(before)))


def _same_items(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Whether the first of each pair has the very items of the second. False may be wrong: a class of the user may
    iterate in its own way."""
    now, before = zip(*pairs, strict=True)
    if list(map(len, now)) != list(map(len, before)):
        return False
    return all(map(is_, chain.from_iterable(now), chain.from_iterable(before)))


def _bind_again(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Make a dict hold what it held, in its order."""
    if now.keys() == before.keys() and all(now[name] is value for name, value in before.items()):
        return
    base = _base(now)
    base.clear(now)
    for name, value in before.items():
        base.__setitem__(now, name, value)


def _refill(sequence: Any, items: list[Any]) -> None:
    if len(sequence) != len(items) or any(a is not b for a, b in zip(sequence, items, strict=True)):
        base = _base(sequence)
        base.clear(sequence)
        base.extend(sequence, items)


def _base(container: object) -> Any:
    """The class whose methods change the container, past what a subclass makes of them."""
    return next(base for base in _BUILTIN if isinstance(container, base))
