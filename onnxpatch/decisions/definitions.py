"""Where the names of a function get their values, and which of these a name can have where it is read.

    mask = None                   reaches both reads of `mask` below, unless
    if causal:
        mask = make(mask)         this one ran, which reaches the last line alone
    return attend(x, mask)

In a loop, what is assigned further below reaches as well, in the next round.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPERATORS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
GROWING = frozenset({"append", "extend", "add", "insert", "update", "pop", "remove", "setdefault", "clear"})
Parents = Mapping[ast.AST, ast.AST]
# As it is ("value"), an "element" of it, the one at a place, put into what is there ("grown"), "argument".
How = str | int


@dataclass(frozen=True, eq=False)
class _Definition:
    """One value of a name. statement: that assigns it; replaces: whether the name has no earlier value afterwards."""

    name: str
    value: ast.AST
    how: How
    statement: ast.AST
    replaces: bool = True


def binding(
    node: ast.AST, name: str, parents: Parents, defined: Callable[[ast.AST], dict[str, list[_Definition]]]
) -> tuple[ast.AST | None, Sequence[_Definition]]:
    """(the function that gives a name its value where `node` reads it, the definitions that it may be from).

    (the `for` part, ()) of a comprehension's own name; (None, ()) where no function around assigns it. defined: what
    `definitions` finds, the same objects each time.
    """
    trail, scope = [node], parents.get(node)
    while scope is not None:
        if isinstance(scope, _COMPREHENSIONS):
            made = [part for part in _made_before(scope.generators, trail) if binds(part.target, name)]
            if made:
                return made[-1], ()
        elif isinstance(scope, SCOPES) and name in (known := defined(scope)):
            return scope, reaching(node, known[name], scope, parents)
        trail.append(scope)
        scope = parents.get(scope)
    return None, ()


def _made_before(generators: Sequence[ast.comprehension], trail: Sequence[ast.AST]) -> Sequence[ast.comprehension]:
    """The `for` parts of a comprehension whose names are there where the trail, from a node up to it, begins.

    [x for x in x]     the second x is the comprehension's, the third is not
    """
    part = trail[-1]
    if not isinstance(part, ast.comprehension):
        return generators
    at = generators.index(part)
    return generators[: at + (trail[-2] is not part.iter)]


def definitions(scope: ast.AST) -> dict[str, list[_Definition]]:
    """By name: what a function or lambda assigns to it, in the order of the source; its arguments first."""
    found: dict[str, list[_Definition]] = {}
    for argument in _arguments(scope.args):  # type: ignore[attr-defined]
        found.setdefault(argument.arg, []).append(_Definition(argument.arg, argument, "argument", argument))
    made = [one for node in body_nodes(scope) for one in _assigned(node)]
    for one in sorted(made, key=lambda one: _place(one.statement)):
        found.setdefault(one.name, []).append(one)
    return found


@functools.lru_cache(maxsize=512)
def body_nodes(scope: Any) -> list[ast.AST]:
    """The nodes of the body of a function or lambda, without those of the functions in it."""
    found: list[ast.AST] = [*scope.body] if isinstance(scope.body, list) else [scope.body]
    for node in found:  # grows
        found += children(node) if not isinstance(node, SCOPES) else ()
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes in a node but operators, for which ast.iter_child_nodes takes three times as long."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        for one in value if type(value) is list else (value,):
            if isinstance(one, ast.AST) and not isinstance(one, _OPERATORS):
                found.append(one)
    return found


def reaching(read: ast.AST, defined: Sequence[_Definition], scope: ast.AST, parents: Parents) -> list[_Definition]:
    """Those of the definitions of a name that it may have where `read` stands."""
    around = list(_around(read, parents))
    if len(defined) < 2 or _function_around(around) is not scope:
        return list(defined)  # read in a function inside, whenever that is called
    before = [one for one in defined if _precedes(one, read, around) and not _is_on_other_side(one, read, parents)]
    last = next((one for one in reversed(before) if one.replaces and _always(one, around, parents)), None)
    found = before[before.index(last) :] if last is not None else before
    outer = set(_around(last.statement, parents)) if last is not None else set()
    loops = {one for one in around if isinstance(one, ast.For | ast.While | ast.AsyncFor)} - outer
    later = (one for one in defined if one not in before)
    return found + [one for one in later if not loops.isdisjoint(_around(one.statement, parents))]


def _function_around(around: Sequence[ast.AST]) -> ast.AST | None:
    return next((one for one in around if isinstance(one, SCOPES)), None)


def _around(node: ast.AST, parents: Parents) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _precedes(one: _Definition, read: ast.AST, around: Sequence[ast.AST]) -> bool:
    if one.how == "argument":
        return True
    if one.statement in around:  # a loop or a `with` in whose body it is read; else the value is computed before
        return isinstance(one.statement, ast.For | ast.AsyncFor | ast.With | ast.NamedExpr)
    return _place(one.statement) <= _place(read)


def _is_on_other_side(one: _Definition, read: ast.AST, parents: Parents) -> bool:
    """Whether a definition stands on one side of an `if` and the read on the other."""
    ways = [
        {parents[node]: node for node in (of, *_around(of, parents)) if node in parents} for of in (one.statement, read)
    ]
    both = (outer for outer in ways[0] if isinstance(outer, ast.If) and outer in ways[1])
    return any({_block(outer, way[outer]) for way in ways} == {"body", "orelse"} for outer in both)


def _always(one: _Definition, around: Sequence[ast.AST], parents: Parents) -> bool:
    """Whether a definition before the read has run wherever the read is."""
    if one.how == "argument" or one.statement in around:
        return True
    outer = parents.get(one.statement)
    same = [other for other in around if outer is not None and parents.get(other) is outer]
    return (
        outer is not None
        and outer in around
        and all(_block(outer, one.statement) == _block(outer, other) for other in same)
    )


def _block(statement: ast.AST, part: ast.AST) -> str:
    """The block of a statement that a part is in: "body", "orelse"."""
    blocks = (name for name, held in ast.iter_fields(statement) if isinstance(held, list) and part in held)
    return next(blocks, "")


def binds(target: ast.AST, name: str) -> bool:
    """Whether a target, of a comprehension say, is or has this name."""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(target))


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    more = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _assigned(node: ast.AST) -> Iterator[_Definition]:
    """What one statement or expression assigns to names."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _into(target, node.value, node)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield from _into(node.target, node.value, node, isinstance(node, ast.AnnAssign))
    elif isinstance(node, ast.For | ast.AsyncFor):
        yield from (_Definition(name, node.iter, "element", node) for name in _names(node.target))
    elif isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _into(item.optional_vars, item.context_expr, node)
    elif isinstance(node, ast.Call):
        yield from _grown(node)
    else:
        yield from (_Definition(name, ast.Constant(0), "value", node) for name in _declared(node))


def _grown(node: ast.Call) -> Iterator[_Definition]:
    """`rows.append(x)`: what a call puts into the value of a name."""
    method = node.func if isinstance(node.func, ast.Attribute) and node.func.attr in GROWING else None
    if method is not None and isinstance(method.value, ast.Name):
        holder = method.value
        yield _Definition(holder.id, node.args[-1] if node.args else holder, "grown", node, replaces=False)


def _declared(node: ast.AST) -> list[str]:
    """The names of a function that is defined, and of what is imported."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    names = node.names if isinstance(node, ast.Import | ast.ImportFrom) else ()
    return [(one.asname or one.name).split(".")[0] for one in names]


def _into(target: ast.AST, value: ast.expr, node: ast.AST, replaces: bool = True) -> Iterator[_Definition]:
    if isinstance(target, ast.Name):
        yield _Definition(target.id, value, "value", node, replaces)
    elif isinstance(target, ast.Tuple | ast.List):
        pairs = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        starred = any(isinstance(part, ast.Starred) for part in target.elts)
        for place, part in enumerate(target.elts):
            if pairs and not starred:
                yield from _into(part, value.elts[place], node)  # type: ignore[attr-defined]
            else:
                how = _way(part, place, starred)
                yield from (_Definition(name, value, how, node) for name in _names(part))
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        yield _Definition(target.value.id, value, "grown", node, replaces=False)


def _way(part: ast.expr, place: int, starred: bool) -> How:
    """How a part of a target gets its value. starred: whether one of the parts is `*rest`."""
    if isinstance(part, ast.Starred):  # a list of as many as there are, like what it is taken from
        return "value"
    return place if isinstance(part, ast.Name) and not starred else "element"


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def stored(node: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """(name, value, whether it is put into what the attribute holds) of what a statement keeps on an object."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in GROWING and node.args:
        holder = node.func.value  # type: ignore[attr-defined]
        yield from [(holder.attr, node.args[-1], True)] if isinstance(holder, ast.Attribute) else []
    value: Any = getattr(node, "value", None)
    for part in (part for target in targets for part in ast.walk(target) if value is not None):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr, value, False
        elif isinstance(part, ast.Subscript) and isinstance(part.value, ast.Attribute):
            yield part.value.attr, value, True
