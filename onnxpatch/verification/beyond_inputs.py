"""Finds the lines at which a forward reads something else than the values of its inputs, which a file cannot read.

    self.hidden = self.cell(x, self.hidden)      an attribute that the next call reads; so of a class, or of a module
    TABLES[x.shape[1]] = made                    what functions keep, functools.cache too
    if time.time() > self.until: ...             the clock, the environment, random numbers of Python's own
    if x.is_contiguous(): ...                    strides and addresses of an input; whether two inputs are one tensor

Only lines that ran count. What a function loads is looked up where it would find it; nothing is called.
"""

from __future__ import annotations

import ast
import datetime
import os
import random
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from onnxpatch.decisions.code_run import CodeRun, found, is_global
from onnxpatch.decisions.conditionals import Source, source_of
from onnxpatch.decisions.definitions import GROWING, stored
from onnxpatch.decisions.dependence import Dependence
from onnxpatch.decisions.functions_run import Function, instructions_of
from onnxpatch.decisions.sides_taken import SidesTaken
from onnxpatch.verification.comparison import all_alike
from onnxpatch.verification.eager import Answer, Eager
from onnxpatch.verification.probe import Probe

_MOST = 3  # that are named of a kind
_OF_THE_CLOCK = frozenset(("now", "utcnow", "today"))
_CACHES = frozenset(("cache", "lru_cache"))
_SLEEPS = frozenset(("sleep", "tzset", "struct_time"))
_HOMES = frozenset((os, time, datetime, datetime.datetime, datetime.date, random, numpy, numpy.random))
_WRITING = frozenset(("STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "IS_OP"))
_KEEPS = "keeps for the next call"
Lines = Mapping[int, Collection[int]]


def changes_of_a_call(eager: Eager, values: Sequence[object], first: Answer) -> tuple[list[str], list[str]]:
    """(what a call changes where the next one answers otherwise, what it changes that is read where it does not).

    Each as `hidden (model.py:12)`. first: the answer of the last call, to the same values, after which the model's
    state was left as it was.
    """
    names, second = eager.changed(), eager.again(values)
    if first.outputs is None or second.outputs is None:
        return [], []
    lines = _lines([first])
    functions = eager.sides.functions
    places = {name: _line(functions, lines, name.rpartition(".")[2]) for name in names}
    if all_alike(first.outputs, second.outputs):
        read = [name for name in names if _is_read(functions, lines, name.rpartition(".")[2])]
        return [], [f"{name} ({places[name]})" for name in read if places[name]]
    said = [f"{name} ({places[name]})" if places[name] else name for name in names[:_MOST]]
    outside = [kept for kind, kept in _read_outside(functions, lines) if kind == _KEEPS]
    return said or outside[:_MOST] or ["something that is no attribute of a module"], []


def beyond_inputs(
    sides: SidesTaken, probes: Iterable[Probe], kept: Sequence[str], strides: Iterable[str], most: int = _MOST
) -> list[str]:
    """`reads the clock: model.py:12`, a part for each kind of what is read beside the values of the inputs.

    kept: attributes that a call changes and reads. strides: lines that ask for strides or addresses of an input. most:
    that are named of a kind.
    """
    by_kind = defaultdict[str, dict[str, None]](dict)
    by_kind[_KEEPS].update(dict.fromkeys(kept))
    by_kind["asks how an input lies in memory"].update(dict.fromkeys(strides))
    for kind, said in _read_outside(sides.functions, _lines(probes)):
        by_kind[kind].setdefault(said)
    return [_named(kind, list(said), most) for kind, said in by_kind.items() if said]


def _named(kind: str, said: Sequence[str], most: int) -> str:
    more = f" and {len(said) - most} more" if len(said) > most else ""
    return f"the forward {kind}: {', '.join(said[:most])}{more}"


def _lines(taken: Iterable[Answer | Probe]) -> Lines:
    ran = defaultdict[int, set[int]](set)
    for one in taken:
        for number, line in one.taken.lines if one.taken is not None else ():
            ran[number].add(line)
    return ran


def _nodes(functions: Sequence[Function], lines: Lines) -> Iterator[tuple[Function, Source, Any]]:
    """The nodes on lines that ran; of what stands in another function once."""
    seen = set[ast.AST]()
    for function in functions:
        source = source_of(function.code)
        ran = lines.get(function.number, ())
        for node in source.nodes if source is not None and ran else ():
            if source is not None and getattr(node, "lineno", 0) in ran and node not in seen:
                seen.add(node)
                yield function, source, node


def _line(functions: Sequence[Function], lines: Lines, name: str) -> str:
    """The line that ran on which a function of the model assigns an attribute or writes into it."""
    having = [one for one in functions if name in one.code.co_names]
    for function, _, node in _nodes(having, lines):
        if name in (*(attribute for attribute, *_ in stored(node)), _in_place(node)):
            return _place(function, node)
    return ""


def _in_place(node: ast.AST) -> str:
    """The attribute that a call such as `self.hidden[0].add_(1)` writes into."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")):
        return ""
    target = node.func.value
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.attr if isinstance(target, ast.Attribute) else ""


def _is_read(functions: Sequence[Function], lines: Lines, name: str) -> bool:
    """Whether an attribute is read before the function that reads it has assigned it anew in any case."""
    written: dict[Function, int] = {}
    for function, source, node in _nodes([one for one in functions if name in one.code.co_names], lines):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            always = isinstance(source.parents.get(node), ast.FunctionDef)
            if always and isinstance(target, ast.Attribute) and target.attr == name:
                written.setdefault(function, node.end_lineno or node.lineno)
        reads = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == name
        if reads and node.lineno <= written.get(function, node.lineno):
            return True
    return False


def _place(function: Function, node: Any) -> str:
    return f"{function.code.co_filename}:{node.lineno}"


# ------------------------------------------------------------------ outside of the model and of its inputs
def _read_outside(functions: Sequence[Function], lines: Lines) -> Iterator[tuple[str, str]]:
    """(kind, what and where) of each read of the clock and the like, and of what classes and modules keep."""
    loading = {one: _loads_such(one) for one in functions}
    # The search through a source takes longer.
    told = [one for one in functions if loading[one] or _writes_or_asks(one)]
    for function, source, node in _nodes(told, lines):
        place = _place(function, node)
        if name := _changed_outside(function, source, node):
            yield _KEEPS, f"{name} ({place})"
        elif _asks_for_one(function, node):
            yield "asks whether two inputs are one tensor", place
        elif loading[function] and (kind := _kind(found(function, source, node))):
            yield from [(kind, place)] if not _runs_once(functions, function) else ()
    yield from ((_KEEPS, f"what functools.cache has ({place})") for place in _cached(functions))


def _loads_such(function: Function) -> bool:
    """Whether what a function loads may be of a kind."""
    imports = any(one.opname == "IMPORT_NAME" for one in instructions_of(function.code))
    loaded = (function.globals.get(name) for name in function.code.co_names)
    return imports or any(one in _HOMES or _kind(one) for one in loaded if isinstance(one, Hashable))


def _writes_or_asks(function: Function) -> bool:
    """Whether its code writes into anything, or asks for identity."""
    names = {one.opname for one in instructions_of(function.code)}
    return bool(_WRITING & names) or not GROWING.isdisjoint(function.code.co_names)


def _kind(one: object) -> str:
    """What a function or object tells that no input does; "" for others."""
    name, owner = getattr(one, "__name__", ""), getattr(one, "__self__", None)
    if one is os.environ or one is os.getenv:
        return "reads the environment"
    if getattr(one, "__module__", "") == "time" and name not in _SLEEPS:
        return "reads the clock"
    if name in _OF_THE_CLOCK and isinstance(owner, type) and issubclass(owner, datetime.date):
        return "reads the clock"
    draws = isinstance(owner, random.Random) or type(owner).__module__.startswith("numpy.random")
    return "draws Python's random numbers" if draws else ""


def _changed_outside(function: Function, source: Source, node: ast.AST) -> str:
    """The global, or the attribute of a class, that a statement changes."""
    if isinstance(node, ast.Call):
        method = node.func if isinstance(node.func, ast.Attribute) and node.func.attr in GROWING else None
        name = getattr(method.value, "id", "") if method is not None else ""
        return name if is_global(function, name) else ""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else ()
    return next(filter(None, (_outside(function, source, target) for target in targets)), "")


def _outside(function: Function, source: Source, target: ast.expr) -> str:
    if isinstance(target, ast.Name):
        declared = (one.names for one in source.nodes if isinstance(one, ast.Global))
        return target.id if any(target.id in names for names in declared) else ""
    holder = target.value if isinstance(target, ast.Subscript | ast.Attribute) else target
    name, attribute = getattr(holder, "id", ""), getattr(target, "attr", "")
    if is_global(function, name):
        return attribute or name
    of_class = name == "cls" or getattr(holder, "attr", "") == "__class__" or _calls(holder) == "type"
    return attribute if of_class else ""


def _calls(node: ast.AST) -> str:
    """The name of what is called: `type`, `functools.cache`."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _cached(functions: Sequence[Function]) -> Iterator[str]:
    """The functions that functools.cache calls, with arguments that an input decides."""
    asked = [one for one in functions if one.code.co_argcount and _is_cached(source_of(one.code))]
    known = Dependence(CodeRun(functions, {}), {}, {}, {}) if asked else None
    for one in asked:
        if known and any(known.is_decided(one, name) for name in one.code.co_varnames[: one.code.co_argcount]):
            yield f"{one.code.co_filename}:{one.code.co_firstlineno}"


def _is_cached(source: Source | None) -> bool:
    decorators = getattr(source.tree, "decorator_list", ()) if source is not None else ()
    parts = (part for one in decorators for part in ast.walk(one))
    return any(_CACHES & {getattr(part, "id", ""), getattr(part, "attr", "")} for part in parts)


def _runs_once(functions: Sequence[Function], one: Function) -> bool:
    """Whether functools.cache keeps what it found, as in checks of what is installed: no call reads it again."""
    callers = [functions[number] for number, _ in one.callers if number >= 0]
    return any(of and all(_is_cached(source_of(each.code)) for each in of) for of in ([one], callers))


def _asks_for_one(function: Function, node: ast.AST) -> bool:
    """Whether it asks if two arguments are one tensor: `key is query`."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Is | ast.IsNot):
        return False
    names = [getattr(one, "id", "") for one in (node.left, node.comparators[0])]
    return all("tensor" in function.kinds.get(name, ()) for name in names)
