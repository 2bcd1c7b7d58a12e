"""`CodeRun`: the functions that ran, beside their sources: which lines ran, who called whom with what, what was stored.

What a call hands over for an argument of the function that it calls:

    def f(self, a, b=None, *rest, c=None, **more): ...

    self.f(x, *pair, c=y)       a: x      b: one of pair, the first      c: y
"""

from __future__ import annotations

import ast
import datetime
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any, TypeGuard

from onnxpatch.decisions.conditionals import Source, source_of
from onnxpatch.decisions.definitions import SCOPES, body_nodes, stored
from onnxpatch.decisions.functions_run import OUTSIDE, Caller, Function, position

_DEEPEST_SITE = 3  # calls in calls that are told apart by the place of each
_GOING_OVER = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")  # names of code


class CodeRun:
    """functions: those that ran. lines: by a function's number, its lines that ran; {} where this is not known."""

    def __init__(self, functions: Sequence[Function], lines: Mapping[int, Collection[int]]) -> None:
        self.functions, self._lines = functions, lines
        self._sources: dict[int, Source | None] = {}
        self._outer = {id(code): one for one in functions for code in one.inner}
        self._stored: dict[str, list[tuple[Function, ast.expr, bool]]] | None = None
        self._callees: dict[tuple[str, tuple[int, ...]], list[tuple[Function, Caller, Collection[str]]]] = {}
        self._sites: dict[tuple[Function, Function, Caller], Function] = {}
        for one in functions:
            for caller, at in one.callers:
                # `any(f(x) for x in xs)` calls any: the values that it goes over are read from its argument.
                if caller != OUTSIDE and one.code.co_name not in _GOING_OVER:
                    code = functions[caller].code
                    kinds, _ = one.returns.get((caller, at), ((), 0))
                    place = code.co_filename, position(code, at)
                    self._callees.setdefault(place, []).append((one, (caller, at), kinds))

    # -------------------------------------------------------------- sources
    def source(self, one: Function) -> Source | None:
        """The source of a function, that of the function around it for a lambda or a comprehension."""
        if one.number not in self._sources:
            outer = self.around(one)
            self._sources[one.number] = self.source(outer) if outer is not one else source_of(one.code)
        return self._sources[one.number]

    def around(self, one: Function) -> Function:
        """The function in which a lambda, a comprehension or an inner function stands; another one itself."""
        return self._outer.get(id(one.code), one)

    def with_tree(self, one: Function, scope: ast.AST) -> Function | None:
        """The function that ran with this tree as its body: `one`, or the one around or inside of it."""
        name, line = getattr(scope, "name", "<lambda>"), getattr(scope, "lineno", 0)
        first = min([line, *(d.lineno for d in getattr(scope, "decorator_list", ()))])
        fits = (
            other
            for other in (one, *self.functions)
            if other.code.co_name == name
            and other.code.co_filename == one.code.co_filename
            and other.code.co_firstlineno in (line, first)
        )
        return next(fits, None)

    def ran(self, one: Function, node: ast.AST) -> bool:
        """Whether the statement of an expression ran, as far as is known."""
        lines, line = self._lines.get(one.number), getattr(node, "lineno", 0)
        if not lines or id(one.code) in self._outer:
            return True
        source = self.source(one)
        while source is not None and node is not None and not isinstance(node, ast.stmt):
            node = source.parents.get(node)  # type: ignore[assignment]
        first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", line)
        return any(first <= ran <= last for ran in lines)

    def found(self, one: Function, node: ast.expr) -> object:
        """The object that a name, or an attribute of a module, stands for; None where that is not known."""
        source = self.source(one)
        return found(one, source, node) if source is not None else None

    # -------------------------------------------------------------- calls
    def called(self, one: Function, node: ast.AST) -> Sequence[tuple[Function, Collection[str]]]:
        """The functions of the model that an expression was seen to call, each with the kinds of what it returned."""
        place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        file = one.code.co_filename
        found = self._callees.get((file, place)) or self._callees.get((file, place[:1]), [])
        return [(self._at_site(one, other, caller), kinds) for other, caller, kinds in found]

    def _at_site(self, calling: Function, called: Function, caller: Caller) -> Function:
        """A short function as it is called from one place: `exists(mask)` says nothing of `exists(self.rotary)`."""
        if not called.is_short or calling.depth >= _DEEPEST_SITE:
            return called
        key = called, calling, caller
        if key not in self._sites:
            self._sites[key] = called.at_site(calling, caller)
        return self._sites[key]

    def expression_at(self, one: Function, at: int) -> ast.AST | None:
        """The expression of an instruction: a call, an item, an operation; None where it is not known."""
        source, place = self.source(one), position(one.code, at)
        if source is None:
            return None
        if len(place) == 1:
            calls = [node for node in source.nodes if isinstance(node, ast.Call) and node.lineno == place[0]]
            return calls[0] if len(calls) == 1 else None
        return source.places.get(place)

    def bodies(self, one: Function) -> list[ast.expr] | None:
        """The expressions that a lambda on the function's first line returns; None for what is no lambda."""
        source = self.source(one)
        if source is None or not one.code.co_name.startswith("<"):
            return None
        return [node.body for node in source.nodes if _is_lambda(node, one.code.co_firstlineno)]

    def returned(self, one: Function) -> Iterator[tuple[ast.Return | ast.Yield, ast.expr, ast.AST]]:
        """(the statement, its value, the tree of the function) of each `return` and `yield` that ran."""
        source = self.source(one)
        functions = [node for node in source.nodes if isinstance(node, SCOPES)] if source else []
        scope = next((node for node in functions if self.with_tree(one, node) is one), None)
        for node in body_nodes(scope) if scope is not None else ():
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None and self.ran(one, node):
                yield node, node.value, scope  # type: ignore[misc]

    def stores(self) -> dict[str, list[tuple[Function, ast.expr, bool]]]:
        """By name: what the functions that ran assign to attributes, and put into what attributes hold."""
        if self._stored is None:
            self._stored = {}
            for one in self.functions:
                names = set(one.code.co_names)
                source = self.source(one) if names and id(one.code) not in self._outer else None
                for node in source.nodes if source is not None else ():
                    for name, value, item in stored(node):
                        self._stored.setdefault(name, []).append((one, value, item))
        return self._stored


def _is_lambda(node: ast.AST, line: int) -> TypeGuard[ast.Lambda]:
    return isinstance(node, ast.Lambda) and node.lineno == line


HandedOver = tuple[ast.expr, bool, str | None]
"""(an expression of a call, whether the argument is in what it gives, under which name or place, if known)."""


def handed_over(call: ast.Call, code: CodeType, name: str, key: str | None) -> Iterator[HandedOver]:
    """What may be the argument `name` of a function. key: of one value in it, where it is a `**kwargs` or `*args`."""
    names = code.co_varnames[: code.co_argcount]
    bound = _binds_first(call, names)
    if bound and name == names[0]:
        yield from [(call.func.value, False, None)] if isinstance(call.func, ast.Attribute) else []
        return
    yield from _by_keyword(call, key or name, gathers=key is None and name not in (*names, *_keyword_only(code)))
    behind = len(names) - bound  # the place in the call at which `*args` begins
    if key is not None and key.isdecimal():
        yield from _at_place(call, behind + int(key), key or name)
    elif name in names:
        yield from _at_place(call, names.index(name) - bound, key or name)
    elif key is None:
        yield from _behind(call, behind)


def _binds_first(call: ast.Call, names: tuple[str, ...]) -> bool:
    """Whether the first argument is what a method is called on: `x.f()`, but not `super().f(self)`."""
    first = call.args[0] if call.args else None
    return names[:1] in (("self",), ("cls",)) and not (isinstance(first, ast.Name) and first.id == names[0])


def _by_keyword(call: ast.Call, wanted: str, gathers: bool) -> Iterator[HandedOver]:
    """gathers: the argument is the whole of `**kwargs`."""
    for keyword in call.keywords:
        if keyword.arg == wanted:
            yield keyword.value, False, None
        elif keyword.arg is None:
            yield (keyword.value, True, wanted)
        elif gathers:
            yield keyword.value, False, None


def _at_place(call: ast.Call, place: int, name: str) -> Iterator[HandedOver]:
    spelled = any(keyword.arg == name for keyword in call.keywords)
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            if place >= index and not spelled:
                yield (argument.value, True, str(place - index))
            return
        if index == place:
            yield argument, False, None


def _behind(call: ast.Call, first: int) -> Iterator[HandedOver]:
    """All that is handed over by position from a place on."""
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            yield (argument.value, True, None)
            return
        if index >= first:
            yield argument, False, None


def _keyword_only(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


# ------------------------------------------------------------------ what a name stands for
def found(function: Function, source: Source, node: ast.AST) -> Any:
    """The object that a name, or an attribute of a module, stands for in a function; None where that is not known."""
    if isinstance(node, ast.Name):
        return function.globals.get(node.id) if is_global(function, node.id) else _imported(source, node.id)
    of = found(function, source, node.value) if isinstance(node, ast.Attribute) else None
    if isinstance(of, ModuleType):
        return vars(of).get(node.attr)  # type: ignore[attr-defined]
    dates = isinstance(of, type) and issubclass(of, datetime.date)
    return getattr(of, node.attr, None) if dates else None  # type: ignore[attr-defined]


def _imported(source: Source, name: str) -> Any:
    """What a function itself imports under a name."""
    for node in source.nodes:
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if (one.asname or one.name) == name:
                home = sys.modules.get(getattr(node, "module", None) or one.name)
                return home if isinstance(node, ast.Import) else getattr(home, one.name, None)
    return None


def is_global(function: Function, name: str) -> bool:
    """Whether a name of a function is a global's."""
    code = function.code
    return name in function.globals and name not in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
