"""Reads the numbers with which a model's code compares or counts, whatever name they have there.

if int(ids[0]) == self.config.end: ...     an attribute of an object, the module's or the class's
if len(x) > LONGEST: ...                   a global, a default, a closure's
for i in range(0, n, self.at_once): ...    a length of pieces

Python compares plain numbers there, which no recorded run shows. So the code is read: what stands on the line of a
comparison, or of a call that chooses by numbers, is looked up where the code would find it. Nothing is called.
"""

from __future__ import annotations

import dis
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from onnxpatch.verification.own_code import is_own, own_classes

_CHOOSING = frozenset((
    "range", "split", "chunk", "get", "isclose", "allclose", "searchsorted", "bucketize", "digitize", "bisect",
    "bisect_left", "bisect_right", "index", "count", "islice", "batched",
))  # fmt: skip
_FINITE = frozenset(("isnan", "isinf", "isfinite", "nan_to_num"))
_DEEPEST = 4  # helpers of helpers
_MOST = 256  # functions
_LONGEST = 32  # elements of a table: with more it is a vocabulary
_NOTHING = object()
_IN_TEXT = re.compile(r"-?\d+(?:\.\d+)?")
_TEXT = re.compile(r"[-\d.,;: ]{1,32}")
_ARITHMETIC: dict[str, Callable[[Any, Any], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True)
class Asked:
    """numbers: on lines that ask, each once, in the order of the code. others: on other lines. sequences: lists and
    tuples of them. finite: NaN or infinity are asked for by name."""

    numbers: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    sequences: tuple[tuple[float, ...], ...] = ()
    finite: bool = False


@dataclass(frozen=True)
class _Scope:
    """A function's code, and what its names mean."""

    code: CodeType
    globals: Mapping[str, Any]
    names: dict[str, Any]
    depth: int = 0

    def inside(self, code: CodeType) -> _Scope:
        return _Scope(code, self.globals, self.names, self.depth)


@dataclass(frozen=True)
class _Method:
    function: FunctionType
    owner: object


def asked(model: torch.nn.Module) -> Asked:
    """What the forwards of the model's own classes ask for, with the functions and methods that they name."""
    numbers: dict[float, None] = {}
    others: dict[float, None] = {}
    sequences: dict[tuple[float, ...], None] = {}
    finite = False
    for scope in _reached(model):
        finite |= bool(_FINITE & set(scope.code.co_names))
        for value, asks in _values(scope):
            (numbers if asks else others).update(dict.fromkeys(_numbers(value)))
            sequences.update(dict.fromkeys(_rows(value)) if asks else {})
    return Asked(tuple(numbers), tuple(one for one in others if one not in numbers), tuple(sequences), finite)


def _reached(model: torch.nn.Module) -> Iterator[_Scope]:
    """The code of a class is read once, with its first instance."""
    waiting, seen = list(_first(model)), set[CodeType]()
    while waiting and len(seen) < _MOST:
        scope = waiting.pop(0)
        if scope.code in seen:
            continue
        seen.add(scope.code)
        yield scope
        waiting += [scope.inside(inner) for inner in scope.code.co_consts if isinstance(inner, CodeType)]
        if scope.depth < _DEEPEST:
            waiting += [_scope(one, scope.depth + 1) for _, one, _ in _loaded(scope) if _is_code(one)]


def _first(model: torch.nn.Module) -> Iterator[_Scope]:
    own = set(own_classes(model))
    for module in model.modules():
        for cls in type(module).__mro__:
            forward = vars(cls).get("forward")
            if cls in own and isinstance(forward, FunctionType):
                yield _scope(_Method(forward, module))
        yield from (_scope(kept) for kept in vars(module).values() if _is_code(kept))


def _is_code(value: object) -> bool:
    function = value.function if isinstance(value, _Method) else value
    return isinstance(function, FunctionType) and is_own(function.__module__)


def _scope(made: Any, depth: int = 0) -> _Scope:
    """The meaning of names: the closure's, the defaults, and `self`."""
    function: FunctionType = made.function if isinstance(made, _Method) else made
    code = function.__code__
    names: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    names |= dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    names |= function.__kwdefaults__ or {}
    if isinstance(made, _Method) and arguments:
        names[arguments[0]] = made.owner
    return _Scope(code, function.__globals__, names, depth)


def _values(scope: _Scope) -> Iterator[tuple[object, bool]]:
    """(value, whether its line asks) of what is loaded."""
    found = list(_loaded(scope))
    asking = {line for line, _, asks in found if asks}
    yield from ((value, line in asking) for line, value, _ in found)


def _loaded(scope: _Scope) -> Iterator[tuple[int, object, bool]]:
    """(line, value, whether it asks) of what is loaded, as far as it is known without running the code."""
    line, before, top = 0, _NOTHING, _NOTHING
    scope = replace(scope, names=dict(scope.names))  # with its own variables, as they are set
    instructions = list(dis.get_instructions(scope.code))
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        line = _line(one, line)
        asks = one.opname in ("COMPARE_OP", "CONTAINS_OP") or (
            one.opname.startswith("LOAD_") and isinstance(one.argval, str) and one.argval in _CHOOSING
        )
        value = _value(one, scope, before, top)
        if asks or (value is not _NOTHING and not _subscribes(following)):
            yield line, value, asks
        if one.opname == "STORE_FAST":
            scope.names[one.argval] = top
        before, top = top, value


def _line(one: dis.Instruction, before: int) -> int:
    positions = getattr(one, "positions", None)  # Python 3.10 has none
    found = positions.lineno if positions is not None else one.starts_line
    return found if isinstance(found, int) and not isinstance(found, bool) else before


def _value(one: dis.Instruction, scope: _Scope, before: object, top: object) -> object:
    kind, named = one.opname, one.argval
    if kind.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
        return named
    if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
        return scope.globals.get(named, _NOTHING)
    if kind in ("LOAD_ATTR", "LOAD_METHOD"):
        return _attribute(top, named)
    if kind.startswith(("LOAD_FAST", "LOAD_DEREF")):
        return scope.names.get(named[-1] if isinstance(named, tuple) else named, _NOTHING)
    if (
        one.opname == "BINARY_OP"
        and one.argrepr in _ARITHMETIC
        and all(type(side) in (int, float) for side in (before, top))
    ):
        return _ARITHMETIC[one.argrepr](before, top)
    if _subscribes(one):
        return before.get(top, _NOTHING) if type(before) is dict and isinstance(top, str | int) else _NOTHING
    return _NOTHING


def _subscribes(one: dis.Instruction | None) -> bool:
    """Whether it takes an item: what is loaded before it is a place, and no number that data is compared with."""
    return one is not None and (one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]"))


def _attribute(owner: object, name: str) -> object:
    """Without asking the object: a property would run code."""
    if owner is _NOTHING or isinstance(owner, ModuleType):
        return vars(owner).get(name, _NOTHING) if isinstance(owner, ModuleType) and is_own(owner.__name__) else _NOTHING
    own: Any = getattr(owner, "__dict__", {})
    for held in (own, own.get("_modules") or {}) if isinstance(own, Mapping) else ():
        if name in held:
            return held[name]
    for cls in type(owner).__mro__:
        if name in vars(cls):
            found = vars(cls)[name]
            return _Method(found, owner) if isinstance(found, FunctionType) else found
    return _NOTHING


def _numbers(value: object, depth: int = 2) -> Iterator[float]:
    if isinstance(value, str):  # a number is compared as text
        value = _in_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            yield value
    elif depth and isinstance(value, dict | set | frozenset | tuple | list) and len(value) <= _LONGEST:
        for one in value:
            yield from _numbers(one, depth - 1)


def _in_text(text: str) -> tuple[float, ...]:
    return tuple(map(float, _IN_TEXT.findall(text))) if _TEXT.fullmatch(text) else ()


def _rows(value: object) -> Iterator[tuple[float, ...]]:
    value = _in_text(value) if isinstance(value, str) else value
    if not isinstance(value, dict | set | frozenset | tuple | list) or not 0 < len(value) <= _LONGEST:
        return
    if isinstance(value, tuple | list) and _are_numbers(value):
        yield tuple(value)
    yield from (tuple(one) for one in value if isinstance(one, tuple | list) and _are_numbers(one))


def _are_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
