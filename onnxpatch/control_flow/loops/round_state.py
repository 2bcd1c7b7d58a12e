"""Compares the Python state between the rounds of a plain loop. If it is equal, three rounds stand for any number.

Python is deterministic: from the same state it makes the same torch calls. So between rounds everything that the
running forwards can reach is looked at: local names, attributes of modules, closures, objects, iterators, plain
globals. Tensors are compared by where they came from (outside the loop, or the round that just ended, at the same place
in it), everything else by value. Opaque are functions without closures and objects of torch, NumPy and the standard
library: they are compared by class.

    total, n = torch.zeros(4), 0
    for row in x:
        total = total + row          # made by the round before, at the same place: the same state
        n += 1                       # another number after every round: refused, since `if n == 10` could follow

A list may grow by the same tensors in every round: `outs.append(y)`. First what can be reached: `roots`, and the parts
of a value, `members_of`.
"""

from __future__ import annotations

import collections
import functools
import itertools
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, FrameType
from typing import TypeAlias

import numpy as np
import torch

from onnxpatch.control_flow.pytrees import Unbound, entries_of
from onnxpatch.messages.user_code import is_user_frame, runs_in

Parts: TypeAlias = Iterable[tuple[object, object]]
"""(name or position, value)."""

PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device, np.generic)
"""Types whose values are compared by their text."""

LARGEST = 1000
"""Parts of one container, and elements of one array, that are looked at."""

# Hooks, flags and parameters: torch's own entries in every module, which no forward sets between two rounds.
_MODULES_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "onnxpatch", "numpy"}
_OUTERMOST = ("onnxpatch.control_flow.forked_forward", "run_root")
Origin: TypeAlias = tuple[int, object] | None
"""Where a tensor was made: (round, place in it); None for one from outside the loop."""

_OriginOf = Callable[[torch.Tensor], Origin]
_GrownLists = dict[str, list[object]]
"""By name of a list, what a round appended to it; equal for rounds that append tensors of the same role."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = ("int", "float", "bool", "str")


def roots(frame: FrameType | None, model: torch.nn.Module) -> Iterator[tuple[str, object]]:
    """Names and values that the running forwards can reach.

    Local names from the innermost frame to the model's own call (those of callers are prefixed with their depth, as
    "1:total"), the plain globals of their files, the model.
    """
    files: dict[str, dict[str, object]] = {}
    depth = 0
    # Frames further out are the exporter's.
    while frame is not None and not (runs_in(frame, _OUTERMOST[0]) and frame.f_code.co_name == _OUTERMOST[1]):
        if is_user_frame(frame):
            prefix = "" if depth == 0 else f"{depth}:"
            yield from ((prefix + name, value) for name, value in frame.f_locals.items())
            # Once for each file, however many of its functions are on the stack.
            files[frame.f_globals.get("__name__", "")] = frame.f_globals
            depth += 1
        frame = frame.f_back
    for file, names in files.items():
        yield from ((f"{file}:{n}", value) for n, value in names.copy().items() if n[:2] != "__" and _is_plain(value))
    yield "model", model


def members_of(value: object) -> Parts | None:
    """The parts that a value is made of; None for a value that is compared by its class alone."""
    if isinstance(value, Unbound):
        return [("whole", value.whole)]
    if isinstance(value, list | tuple | collections.deque):
        return enumerate(entries_of(value))
    if isinstance(value, Mapping):
        return enumerate(value.items())
    if isinstance(value, set | frozenset):
        return _set_parts(value)
    if isinstance(value, np.ndarray):
        return [("bytes", value.tobytes())] if value.size <= LARGEST else None
    if isinstance(value, types.FunctionType):
        return enumerate(map(_content, value.__closure__ or ()))
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, types.MethodType):
        return [("self", value.__self__)]
    if isinstance(value, torch.nn.Module):
        return _module_parts(value)
    return _iterator_parts(value) if isinstance(value, Iterator) else _attributes(value)


def _set_parts(value: Collection[object]) -> Parts:
    # The order of a set may change from round to round.
    return enumerate(sorted(repr(one) if isinstance(one, PLAIN) else str(id(one)) for one in value))


def _module_parts(module: torch.nn.Module) -> Parts:
    own = {name: attribute for name, attribute in vars(module).items() if name not in _MODULES_OWN}
    return (own | dict(module._modules) | _class_values(module)).items()


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _iterator_parts(value: Iterator[object]) -> Parts | None:
    """How far an iterator has come: position and locals of a generator, or what pickle would keep of another one."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None or not is_user_frame(frame):
            return None
        return [("line", frame.f_lasti), *frame.f_locals.items()]
    try:
        # The first entry is the function that makes the iterator again: iter, for one of a list.
        return enumerate(value.__reduce__()[1:])
    except (TypeError, AttributeError):
        return None


def _attributes(value: object) -> Parts | None:
    """The attributes of an object whose class is the user's."""
    if isinstance(value, type | types.ModuleType) or not hasattr(value, "__dict__"):
        return None
    package = str(type(value).__module__).partition(".")[0]
    if package in _LIBRARIES and not isinstance(value, types.SimpleNamespace):
        return None
    return (vars(value) | _class_values(value)).items()


def _class_values(value: object) -> dict[str, object]:
    """Plain attributes of an object's classes, by `Class.name`: a counter may be kept there."""
    classes = [cls for cls in type(value).__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]
    attributes = ((cls.__name__, name, value) for cls in classes for name, value in vars(cls).items())
    return {f"{cls}.{name}": value for cls, name, value in attributes if name[:2] != "__" and _is_plain(value)}


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str | list | dict | set)


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


class _RoundState:
    """The Python state after `rounds` rounds, as far as the code in `frame` and its callers can reach it."""

    def __init__(self, frame: FrameType | None, model: torch.nn.Module, rounds: int, origin_of: _OriginOf) -> None:
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


class RoundStates:
    """The states between the rounds of one loop, each compared with the one before. last: the newest, if any.

    refuse: makes the error for what was found.
    """

    def __init__(self, refuse: Callable[[str], Exception]) -> None:
        self._refuse = refuse
        self.last: _RoundState | None = None
        self._grown: _GrownLists | None = None

    def follow(
        self, frame: FrameType | None, model: torch.nn.Module, rounds: int, origin_of: _OriginOf
    ) -> Collection[str]:
        """Look at the state after a round; the lists that have grown. Raises where the next round may differ."""
        before, after = self.last, _RoundState(frame, model, rounds, origin_of)
        self.last = after
        if before is None:
            return ()
        comparison = _Comparison(before.rounds, rounds, self._refuse)
        appeared = sorted(before.parts.keys() ^ after.parts.keys())
        # The first round may bind names that were not there before the loop.
        if before.rounds and appeared:
            raise comparison.changed(appeared[0])
        for name, value in before.parts.items():
            if name in after.parts:
                comparison.compare(value, after.parts[name], name)
        known, grown = self._grown, comparison.grown
        if known is not None and known != grown:
            raise comparison.changed(next(name for name in known | grown if known.get(name) != grown.get(name)))
        self._grown = grown if before.rounds > 1 else None  # a first round may append what was there before the loop
        return grown


class _Comparison:
    """Compares two states, after `before` and `after` rounds."""

    def __init__(self, before: int, after: int, refuse: Callable[[str], Exception]) -> None:
        self.before, self.after, self._refuse = before, after, refuse
        self.grown: _GrownLists = {}
        # Pairs that are compared already: objects may refer to each other.
        self._done: set[tuple[int, int]] = set()

    def changed(self, path: str, number: bool = False) -> Exception:
        """The error for a value that differs. path: the name that has it, as Python writes it."""
        kind = "the Python number " if number else ""
        return self._refuse(f"{kind}{path.rpartition(':')[2]} changes from one round to the next")

    def compare(self, a: Item, b: Item, path: str) -> None:
        """Refuse where two items differ."""
        if isinstance(a, _Group) and isinstance(b, _Group) and a.kind == b.kind:
            if (id(a), id(b)) not in self._done:
                self._done.add((id(a), id(b)))
                self._compare_groups(a, b, path)
        elif isinstance(a, _Tensor) and isinstance(b, _Tensor):
            # A name may lag a round behind (`h, c = state`): after the first round it has what stood before the loop.
            if self.before > 1 and a.role(self.before) != b.role(self.after):
                raise self.changed(path)
        elif a != b and (self.before or (_is_number(a) and _is_number(b))):
            # The first round may replace what was there before the loop, as None by a tensor. Not a number: the code
            # after the loop would find another one after no rounds.
            raise self.changed(path, number=_is_number(a) and _is_number(b))

    def _compare_groups(self, a: _Group, b: _Group, path: str) -> None:
        if a.list_id and a.list_id == b.list_id and len(a.parts) < len(b.parts):
            self._compare_grown(a, b, path)
            return
        if self.before and a.parts.keys() != b.parts.keys():
            raise self.changed(path)
        for name in a.parts.keys() & b.parts.keys():
            inner = f"{path}[{name!r}]" if isinstance(name, int) else f"{path}.{name}"
            self.compare(a.parts[name], b.parts[name], inner)

    def _compare_grown(self, a: _Group, b: _Group, path: str) -> None:
        """A list that grows at its end must keep its first entries; one that grows at its start, its last."""
        old, new = list(a.parts.values()), list(b.parts.values())
        more = len(new) - len(old)
        at_start = new[:more] != old[:more] and isinstance(next(iter(b.parts)), int) and new[more:] == old
        if self.before and not at_start and any(b.parts[name] != part for name, part in a.parts.items()):
            raise self.changed(path)
        appended = new[:more] if at_start else [part for name, part in b.parts.items() if name not in a.parts]
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
