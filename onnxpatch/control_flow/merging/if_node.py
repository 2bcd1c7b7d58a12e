"""Writes an ONNX `If` from two functions: torch.cond under dynamo, a compiled TorchScript `if` under trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import torch

from onnxpatch._torch.cond import compiled_function

Operand: TypeAlias = torch.Tensor | torch.SymInt
Side = Callable[..., tuple[torch.Tensor, ...]]
_numbers = itertools.count()


def conditional(
    predicate: torch.Tensor, then: Side, otherwise: Side, operands: list[Operand], alive: list[object]
) -> list[torch.Tensor]:
    """The results of `then(*operands)` or `otherwise(*operands)`, as one If in the graph that is being captured.

    predicate: 0-d bool tensor. Both sides return equally many tensors, none of them an operand. alive: gets the
    compiled function under trace, which must live until the export is over.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        names = [f"x{number}" for number in range(len(operands))]
        arguments = ", ".join(names)
        lines = ["if bool(p):", f"    r = then({arguments})", "else:", f"    r = otherwise({arguments})", "return r"]
        example = [operand for operand in operands if isinstance(operand, torch.Tensor)]  # sizes are tensors here too
        functions = {"then": (then, example), "otherwise": (otherwise, example)}
        function = compiled_function(f"onnxpatch_if_{next(_numbers)}", ["p", *names], lines, functions)
        alive.append(function)
        results = function(predicate, *operands)
    else:
        results = torch.ops.higher_order.cond(predicate, then, otherwise, tuple(operands))
    return [results] if isinstance(results, torch.Tensor) else list(results)
