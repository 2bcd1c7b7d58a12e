"""Whether every round of a plain Python loop starts from the same Python state: what makes a loop of three rounds one
of any number of them.

Python is deterministic: from the same state it makes the same torch calls. So the state is looked at between rounds:
the local names of the running forwards, the attributes of the modules, closures, objects, iterators and the module's
global numbers. Tensors are compared by where they came from (from outside; or made by the round that just ended, at the
same place in it), everything else by value.

    total, n = torch.zeros(4), 0
    for row in x:
        total = total + row          # made by the round before, at the same place: the same state
        n += 1                       # another number after every round: refused, since `if n == 10` could follow

A list may grow by the same tensors in every round (`outs.append(y)`), see `growing_lists.py`.
"""

from __future__ import annotations

import collections
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch

from onnxpatch.messages.user_code import is_user_frame, runs_in

Origin = tuple[int, Any] | None
"""Where a tensor was made: (round, place in it); None for one from outside the loop."""
OriginOf = Callable[[torch.Tensor], Origin]

_PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device, np.generic)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = ("int", "float", "bool", "str")
_MODULES_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}
_MOST = 1000  # parts of one container that are looked at
_KNOWN = sys.stdlib_module_names - {"__main__"} | {"torch", "onnxpatch", "numpy"}


class Changed(Exception):
    """The state differs between rounds. path: the name that holds it, as Python writes it."""

    def __init__(self, path: str, number: bool = False) -> None:
        super().__init__(path)
        self.path, self.number = path.rpartition(":")[2], number


@dataclass(frozen=True)
class _Tensor:
    origin: Origin
    identity: int

    def seen_from(self, rounds: int) -> tuple[Any, ...]:
        """Equal for tensors that play the same part after different numbers of rounds."""
        return ("outside", self.identity) if self.origin is None else (rounds - self.origin[0], self.origin[1])


@dataclass(frozen=True)
class _Group:
    """A container or an object: its kind, and its parts by name or position."""

    kind: str
    parts: dict[Any, Any]
    list_id: int = 0  # of a container that may grow


class RoundState:
    """The Python state after `rounds` rounds, as far as the code that runs in `frame` can reach it."""

    def __init__(self, frame: FrameType | None, model: torch.nn.Module, rounds: int, origin_of: OriginOf) -> None:
        self.rounds = rounds
        self._origin_of = origin_of
        self._known: dict[int, Any] = {}
        self._alive: list[Any] = []  # so that no id is used again while the state is compared
        self.parts = {name: self._look(value) for name, value in _roots(frame, model)}

    def _look(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self._alive.append(value)
            return _Tensor(self._origin_of(value), id(value))
        if isinstance(value, _SYMBOLIC):
            return ("symbolic", str(value.node.expr) if value.node.has_hint() else "")
        if isinstance(value, _PLAIN):
            return (type(value).__name__, repr(value))
        if id(value) not in self._known:
            self._known[id(value)] = ("inside itself", type(value).__qualname__)
            self._alive.append(value)
            self._known[id(value)] = self._group(value)
        return self._known[id(value)]

    def _group(self, value: Any) -> Any:
        parts = _parts(value)
        if parts is None:
            return ("opaque", type(value).__qualname__)
        found = {name: self._look(part) for name, part in itertools.islice(parts, _MOST)}
        return _Group(type(value).__qualname__, found, _list_id(value))


class _Comparison:
    """Two states, one round apart."""

    def __init__(self, before: int, after: int) -> None:
        self.before, self.after = before, after
        self.grown: dict[str, Any] = {}
        self._done: set[tuple[int, int]] = set()

    def values(self, a: Any, b: Any, path: str) -> None:
        if isinstance(a, _Group) and isinstance(b, _Group) and a.kind == b.kind:
            if (id(a), id(b)) not in self._done:
                self._done.add((id(a), id(b)))
                self._groups(a, b, path)
        elif isinstance(a, _Tensor) and isinstance(b, _Tensor):
            # A name may lag a round behind (`h, c = state`): after the first round it has what stood before the loop.
            if self.before > 1 and a.seen_from(self.before) != b.seen_from(self.after):
                raise Changed(path)
        elif a != b and (self.before or (_is_number(a) and _is_number(b))):
            # What stood before the loop may be replaced in its first round, as None by a tensor. A number may not: the
            # code after the loop would find another one after no rounds.
            raise Changed(path, number=_is_number(a) and _is_number(b))

    def _groups(self, a: _Group, b: _Group, path: str) -> None:
        if a.list_id and a.list_id == b.list_id and len(a.parts) < len(b.parts):
            self._growing(a, b, path)
            return
        if self.before and a.parts.keys() != b.parts.keys():
            raise Changed(path)
        for name in a.parts.keys() & b.parts.keys():
            inner = f"{path}[{name!r}]" if isinstance(name, int) else f"{path}.{name}"
            self.values(a.parts[name], b.parts[name], inner)

    def _growing(self, a: _Group, b: _Group, path: str) -> None:
        """A list that grows at its end keeps what it held."""
        if self.before and any(b.parts[name] != part for name, part in a.parts.items()):
            raise Changed(path)
        added = [part for name, part in b.parts.items() if name not in a.parts]
        self.grown[path] = [_part_played(part, self.after) for part in added]


def check_same(before: RoundState, after: RoundState) -> dict[str, Any]:
    """Raise Changed unless one state plays the part of the other, a round later. Returns what lists have grown by."""
    comparison = _Comparison(before.rounds, after.rounds)
    appeared = sorted(before.parts.keys() ^ after.parts.keys())
    if before.rounds and appeared:
        raise Changed(appeared[0])
    for name, value in before.parts.items():
        if name in after.parts:
            comparison.values(value, after.parts[name], name)
    return comparison.grown


def _list_id(value: Any) -> int:
    """The identity of a list that is filled in place: a deque with a length drops what comes first."""
    return id(value) if isinstance(value, list | dict) or getattr(value, "maxlen", 0) is None else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, tuple) and value[0] in _NUMBERS


def _part_played(value: Any, rounds: int) -> Any:
    """What a round added to a list: equal for rounds that add the same."""
    if isinstance(value, _Tensor):
        return value.seen_from(rounds)
    if isinstance(value, _Group):
        return value.kind, [(name, _part_played(part, rounds)) for name, part in value.parts.items()]
    return value


def _roots(frame: FrameType | None, model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Names and values that the running forwards can reach: local names from the innermost frame to the model's own
    call, the plain globals of their files, the model."""
    files: dict[str, dict[str, Any]] = {}
    depth = 0
    while frame is not None and not (runs_in(frame, _OUTERMOST[0]) and frame.f_code.co_name == _OUTERMOST[1]):
        if is_user_frame(frame):
            prefix = "" if depth == 0 else f"{depth}:"
            yield from ((prefix + name, value) for name, value in frame.f_locals.items())
            files[frame.f_globals.get("__name__", "")] = frame.f_globals
            depth += 1
        frame = frame.f_back
    for file, names in files.items():
        yield from ((f"{file}:{n}", value) for n, value in list(names.items()) if n[:2] != "__" and _is_plain(value))
    yield "model", model


_OUTERMOST = ("onnxpatch.control_flow.forked_forward", "run_root")


def _parts(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """What a value is made of; None for what is known by its class alone."""
    if isinstance(value, list | tuple | collections.deque):
        return iter(enumerate(value))
    if isinstance(value, Mapping):
        return iter(enumerate(value.items()))
    if isinstance(value, set | frozenset):
        return iter(enumerate(sorted(repr(one) if isinstance(one, _PLAIN) else str(id(one)) for one in value)))
    if isinstance(value, np.ndarray):
        return iter([("bytes", value.tobytes())]) if value.size <= _MOST else None
    if isinstance(value, types.FunctionType):
        return iter(enumerate(map(_content, value.__closure__ or ())))
    if isinstance(value, functools.partial):
        return iter([("func", value.func), ("args", value.args), ("keywords", value.keywords)])
    if isinstance(value, types.MethodType):
        return iter([("self", value.__self__)])
    if isinstance(value, torch.nn.Module):
        own = {name: held for name, held in vars(value).items() if name not in _MODULES_OWN}
        return iter((own | dict(value._modules) | _class_values(value)).items())
    return _iterator_parts(value) if isinstance(value, Iterator) else _attributes(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _iterator_parts(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """How far an iterator has come: where a generator stands, or what pickle would keep of another one."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        if frame is None or not is_user_frame(frame):
            return None
        return iter([("line", frame.f_lasti), *frame.f_locals.items()])
    try:
        return iter(enumerate(value.__reduce__()[1:]))
    except (TypeError, AttributeError):
        return None


def _attributes(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """The attributes of an object of the user's."""
    if isinstance(value, type | types.ModuleType) or not hasattr(value, "__dict__"):
        return None
    package = str(type(value).__module__).partition(".")[0]
    if package in _KNOWN and not isinstance(value, types.SimpleNamespace):
        return None
    return iter((vars(value) | _class_values(value)).items())


def _class_values(value: Any) -> dict[str, Any]:
    """Plain values that the classes of an object hold: a counter may be kept there."""
    classes = [cls for cls in type(value).__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]
    held = ((cls.__name__, name, value) for cls in classes for name, value in vars(cls).items())
    return {f"{cls}.{name}": value for cls, name, value in held if name[:2] != "__" and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | list | dict | set)
