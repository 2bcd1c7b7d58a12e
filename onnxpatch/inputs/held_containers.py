"""What dicts, lists, deques and sets hold at one moment, and how to put it back.

A model has some thousand containers, and they are put back after every forward: that nothing changed is asked of all of
them together, without a loop in Python.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import is_
from typing import Any, TypeVar

_AT_ONCE = 64
_BUILTIN = (OrderedDict, dict, list, deque, set)
_Pair = TypeVar("_Pair")


class HeldContainers:
    """The contents of containers, each as it was when it was noted."""

    def __init__(self) -> None:
        # Most are empty, such as a module's dicts of hooks: one look at their lengths says whether any was filled.
        self._empty: list[Any] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._sequences: list[tuple[Any, list[Any]]] = []
        self._sets: list[tuple[set[Any], set[Any]]] = []

    def note(self, containers: Iterable[Any]) -> None:
        """Keep what dicts, lists, deques and sets hold now."""
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
        """Put everything back."""
        if any(map(len, self._empty)):
            for container in self._empty:
                container.clear()
        for some_dicts in _groups(self._dicts):
            if not _same_dicts(some_dicts):
                for now, before in some_dicts:
                    bind_again(now, before)
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


def bind_again(now: dict[Any, Any], before: dict[Any, Any]) -> None:
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
