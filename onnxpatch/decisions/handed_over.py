"""What a call hands over for an argument of the function that it calls.

def f(self, a, b=None, *rest, c=None, **more): ...

self.f(x, *pair, c=y)       a: x      b: one of pair, the first      c: y
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class HandedOver:
    """An expression of a call. inside: the argument is in what it gives; key: under which name or place, if known."""

    value: ast.expr
    inside: bool = False
    key: str | None = None


def handed_over(call: ast.Call, code: CodeType, name: str, key: str | None) -> Iterator[HandedOver]:
    """What may be the argument `name` of a function. key: of one value in it, where it is a `**kwargs` or `*args`."""
    names = code.co_varnames[: code.co_argcount]
    bound = _binds_first(call, names)
    if bound and name == names[0]:
        yield from [HandedOver(call.func.value)] if isinstance(call.func, ast.Attribute) else []
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
            yield HandedOver(keyword.value)
        elif keyword.arg is None:
            yield HandedOver(keyword.value, inside=True, key=wanted)
        elif gathers:
            yield HandedOver(keyword.value)


def _at_place(call: ast.Call, place: int, name: str) -> Iterator[HandedOver]:
    spelled = any(keyword.arg == name for keyword in call.keywords)
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            if place >= index and not spelled:
                yield HandedOver(argument.value, inside=True, key=str(place - index))
            return
        if index == place:
            yield HandedOver(argument)


def _behind(call: ast.Call, first: int) -> Iterator[HandedOver]:
    """All that is handed over by position from a place on."""
    for index, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            yield HandedOver(argument.value, inside=True)
            return
        if index >= first:
            yield HandedOver(argument)


def _keyword_only(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
