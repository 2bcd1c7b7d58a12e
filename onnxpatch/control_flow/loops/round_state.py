"""Compares the Python state between the rounds of a plain loop: equal states make a loop of three rounds one of any.

Python is deterministic: from the same state it makes the same torch calls. So between rounds everything that the
running forwards can reach is looked at: local names, attributes of modules, closures, objects, iterators, plain globals
(`reachable_values.py`). Tensors are compared by where they came from (outside the loop, or the round that just ended,
at the same place in it), everything else by value.

    total, n = torch.zeros(4), 0
    for row in x:
        total = total + row          # made by the round before, at the same place: the same state
        n += 1                       # another number after every round: refused, since `if n == 10` could follow

A list may grow by the same tensors in every round (`outs.append(y)`), see `growing_lists.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

import torch

from onnxpatch.control_flow.loops.reachable_values import LARGEST, PLAIN, members_of, roots

Origin: TypeAlias = tuple[int, object] | None
"""Where a tensor was made: (round, place in it); None for one from outside the loop."""
OriginOf = Callable[[torch.Tensor], Origin]
GrownLists = dict[str, list[object]]
"""By name of a list, what a round appended to it; equal for rounds that append tensors of the same role."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = ("int", "float", "bool", "str")


class Changed(Exception):
    """The state differs between rounds. path: the name that has the value, as Python writes it."""

    def __init__(self, path: str, number: bool = False) -> None:
        super().__init__(path)
        self.path, self.number = path.rpartition(":")[2], number


@dataclass(frozen=True)
class _Tensor:
    """A tensor in a state."""

    origin: Origin
    identity: int

    def role(self, rounds: int) -> tuple[object, ...]:
        """Equal for tensors that have the same role after different numbers of rounds."""
        return ("outside", self.identity) if self.origin is None else (rounds - self.origin[0], self.origin[1])


@dataclass(frozen=True)
class _Group:
    """A container or an object in a state: its class, and its parts by name or position."""

    kind: str
    parts: dict[object, Item]
    list_id: int = 0  # of a container that may grow


Item: TypeAlias = _Tensor | _Group | tuple[str, str]
"""A value in a state; a plain one as (type, text)."""


class RoundState:
    """The Python state after `rounds` rounds, as far as the code in `frame` and its callers can reach it."""

    def __init__(self, frame: FrameType | None, model: torch.nn.Module, rounds: int, origin_of: OriginOf) -> None:
        self.rounds = rounds
        self._origin_of = origin_of
        self._items: dict[int, Item] = {}
        self._alive: list[object] = []  # so that no id is used again while the state is compared
        self.parts = {name: self._item(value) for name, value in roots(frame, model)}

    def _item(self, value: object) -> Item:
        if isinstance(value, torch.Tensor):
            self._alive.append(value)
            return _Tensor(self._origin_of(value), id(value))
        if isinstance(value, _SYMBOLIC):
            # A number from data (`t.item()`) is a new symbol in every round, and has no hint.
            return ("symbolic", str(value.node.expr) if value.node.has_hint() else "")
        if isinstance(value, PLAIN):
            return (type(value).__name__, repr(value))
        if id(value) not in self._items:
            # Set before the parts are visited: a value may contain itself.
            self._items[id(value)] = ("inside itself", type(value).__qualname__)
            self._alive.append(value)
            self._items[id(value)] = self._group(value)
        return self._items[id(value)]

    def _group(self, value: object) -> Item:
        parts = members_of(value)
        if parts is None:
            return ("opaque", type(value).__qualname__)
        items = {name: self._item(part) for name, part in itertools.islice(parts, LARGEST)}
        return _Group(type(value).__qualname__, items, _list_id(value))


def check_same(before: RoundState, after: RoundState) -> GrownLists:
    """Compare two states, one round apart. Returns what lists have grown by; raises Changed where the states differ."""
    comparison = _Comparison(before.rounds, after.rounds)
    appeared = sorted(before.parts.keys() ^ after.parts.keys())
    # The first round may bind names that were not there before the loop.
    if before.rounds and appeared:
        raise Changed(appeared[0])
    for name, value in before.parts.items():
        if name in after.parts:
            comparison.compare(value, after.parts[name], name)
    return comparison.grown


class _Comparison:
    """Compares two states, after `before` and `after` rounds."""

    def __init__(self, before: int, after: int) -> None:
        self.before, self.after = before, after
        self.grown: GrownLists = {}
        # Pairs that are compared already: objects may refer to each other.
        self._done: set[tuple[int, int]] = set()

    def compare(self, a: Item, b: Item, path: str) -> None:
        """Raise Changed(path) where two items differ."""
        if isinstance(a, _Group) and isinstance(b, _Group) and a.kind == b.kind:
            if (id(a), id(b)) not in self._done:
                self._done.add((id(a), id(b)))
                self._compare_groups(a, b, path)
        elif isinstance(a, _Tensor) and isinstance(b, _Tensor):
            # A name may lag a round behind (`h, c = state`): after the first round it has what stood before the loop.
            if self.before > 1 and a.role(self.before) != b.role(self.after):
                raise Changed(path)
        elif a != b and (self.before or (_is_number(a) and _is_number(b))):
            # The first round may replace what was there before the loop, as None by a tensor. Not a number: the code
            # after the loop would find another one after no rounds.
            raise Changed(path, number=_is_number(a) and _is_number(b))

    def _compare_groups(self, a: _Group, b: _Group, path: str) -> None:
        if a.list_id and a.list_id == b.list_id and len(a.parts) < len(b.parts):
            self._compare_grown(a, b, path)
            return
        if self.before and a.parts.keys() != b.parts.keys():
            raise Changed(path)
        for name in a.parts.keys() & b.parts.keys():
            inner = f"{path}[{name!r}]" if isinstance(name, int) else f"{path}.{name}"
            self.compare(a.parts[name], b.parts[name], inner)

    def _compare_grown(self, a: _Group, b: _Group, path: str) -> None:
        """A list that grows at its end must keep its first entries."""
        if self.before and any(b.parts[name] != part for name, part in a.parts.items()):
            raise Changed(path)
        appended = [part for name, part in b.parts.items() if name not in a.parts]
        self.grown[path] = [_roles(part, self.after) for part in appended]


def _list_id(value: object) -> int:
    """The identity of a list or dict that is filled in place; 0 for others, and for a deque that drops its first."""
    return id(value) if isinstance(value, list | dict) or getattr(value, "maxlen", 0) is None else 0


def _is_number(item: Item) -> bool:
    return isinstance(item, tuple) and item[0] in _NUMBERS


def _roles(item: Item, rounds: int) -> object:
    """An appended item with its tensors as roles: equal for rounds that append the same."""
    if isinstance(item, _Tensor):
        return item.role(rounds)
    if isinstance(item, _Group):
        return item.kind, [(name, _roles(part, rounds)) for name, part in item.parts.items()]
    return item
