"""The nodes of a program of torch.export that compute a size: found, or added from the sizes of its inputs.

    n          the node that has it already, or the size of an input's dimension
    n * 49     the product of such
    n // 2     only where a node has it already

A size's expression is `SymInt.node.expr`. If that moves, sizes are unknown, and torch decomposes the program.
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any

import torch
from torch import fx

__all__ = ["size_of", "size_recipe"]


class _Recipe:
    """How a size is made: a number, a node there is, a dimension of an input, or the product of several."""

    def __init__(self, made: int | fx.Node | tuple[fx.Node, int] | list[_Recipe], value: Any) -> None:
        self.made, self.value = made, value


def size_recipe(node: fx.Node, length: Any) -> _Recipe | None:
    """How to compute a size before `node`; None where that takes more than a product."""
    if isinstance(length, int):
        return _Recipe(length, length)
    expression = getattr(getattr(length, "node", None), "expr", None)
    if expression is None:
        return None
    return _by_expression(node, expression, length)


def _by_expression(node: fx.Node, expression: Any, value: Any = None) -> _Recipe | None:
    if expression.is_Integer:
        return _Recipe(int(expression), int(expression))
    if (there := _there(node, expression)) is not None:
        return there
    factors = [_by_expression(node, factor) for factor in expression.args] if expression.is_Mul else [None]
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    return _Recipe(known, functools.reduce(operator.mul, (one.value for one in known)))


def _there(node: fx.Node, expression: Any) -> _Recipe | None:
    """The node before `node` that has a size, or the last dimension of an input that does."""
    places: list[_Recipe] = []
    for one in itertools.takewhile(lambda other: other is not node, node.graph.nodes):
        found = one.meta.get("val")
        if _is(found, expression):
            return _Recipe(one, found)
        if one.op == "placeholder" and isinstance(found, torch.Tensor):
            places += [_Recipe((one, axis), n) for axis, n in enumerate(found.shape) if _is(n, expression)]
    return places[-1] if places else None


def _is(size: Any, expression: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr == expression)


def size_of(node: fx.Node, length: Any) -> Any:
    """The number, or the node that computes it, added where there is none. `size_recipe` must know it."""
    recipe = size_recipe(node, length)
    assert recipe is not None
    return _made(node, recipe)


def _made(node: fx.Node, recipe: _Recipe) -> Any:
    graph = node.graph
    if isinstance(recipe.made, tuple):
        last = [one for one in graph.nodes if one.op == "placeholder"][-1]
        with graph.inserting_after(last):
            made = graph.call_function(torch.ops.aten.sym_size.int, recipe.made)
    elif isinstance(recipe.made, list):
        made, value = _made(node, recipe.made[0]), recipe.made[0].value
        for one in recipe.made[1:]:
            factor, value = _made(node, one), value * one.value
            with graph.inserting_before(node):
                made = graph.call_function(operator.mul, (made, factor))
            made.meta["val"] = value
        return made
    else:
        return recipe.made
    made.meta["val"] = recipe.value
    return made
