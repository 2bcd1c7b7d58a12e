"""A real `If` under both exporters, from two plain functions: torch.cond under dynamo, a compiled `if` under trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.cond import compiled_function

Side = Callable[..., tuple[torch.Tensor, ...]]
_numbers = itertools.count()


def conditional(
    predicate: torch.Tensor, then: Side, otherwise: Side, operands: list[Any], alive: list[Any]
) -> list[torch.Tensor]:
    """The results of `then(*operands)` or `otherwise(*operands)`, as one If in the graph that is being captured.

    predicate: 0-d bool tensor. Both sides return equally many tensors, none of them an operand. `alive`: what must
    live until the export is over is added to it.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        names = [f"x{number}" for number in range(len(operands))]
        given = ", ".join(names)
        lines = ["if bool(p):", f"    r = then({given})", "else:", f"    r = otherwise({given})", "return r"]
        functions = {"then": (then, operands), "otherwise": (otherwise, operands)}
        function = compiled_function(f"onnxpatch_if_{next(_numbers)}", ["p", *names], lines, functions)
        alive.append(function)
        found = function(predicate, *operands)
    else:
        found = torch.ops.higher_order.cond(predicate, then, otherwise, tuple(operands))
    return [found] if isinstance(found, torch.Tensor) else list(found)
