"""divmod() of a size, which neither a traced tensor nor a symbolic number takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


def _blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of 4, and what is left."""
    blocks, rest = divmod(x.shape[1], 4)
    back, less = divmod(-x.shape[1], 3)
    return x[:, : blocks * 4] * (rest + 1), x.sum(1) * back + less


@op(
    "builtins.divmod",
    name="quotient-and-rest",
    why="unsupported operand type(s) for divmod(): 'Tensor' and 'int', where n is x.shape[0]; under dynamo 'SymInt'",
    reason=r"unsupported operand type\(s\) for divmod\(\)",
    link="https://github.com/pytorch/pytorch/issues/44692",
    tries=lambda n: torch.rand(2, n),
    sizes=(7, 12, 9, 30, 5),
    case=_blocks,
    unchanged="fixed sizes",
    beside=("floor-division", "floor-division-sizes"),
)
def quotient_and_rest(original: Callable[..., Any], x: Any, y: Any) -> Any:
    """(x // y, x % y), which other patches and the exporters write."""
    if not (symbolic(x) or symbolic(y)):
        return NotImplemented
    return x // y, x % y
