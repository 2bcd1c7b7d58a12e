"""divmod() of a size, which neither a traced tensor nor a symbolic number takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


class _Blocks(torch.nn.Module):
    """Blocks of 4, and what is left."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        blocks, rest = divmod(x.shape[1], 4)
        back, less = divmod(-x.shape[1], 3)
        return x[:, : blocks * 4] * (rest + 1), x.sum(1) * back + less


@patch(
    "builtins.divmod",
    name="quotient-and-rest",
    why="unsupported operand type(s) for divmod(): 'Tensor' and 'int', where n is x.shape[0]; under dynamo 'SymInt'",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Blocks,
        lambda: [(torch.rand(2, n),) for n in (7, 12, 9, 30, 5)],
        ({1: "n"},),
        fails=("dynamo", "trace"),
        reason=r"unsupported operand type\(s\) for divmod\(\)",
        beside=("floor-division", "floor-division-sizes"),
        unchanged="fixed sizes",
    ),
)
def quotient_and_rest(original: Callable[..., Any], x: Any, y: Any) -> Any:
    """(x // y, x % y), which other patches and the exporters write."""
    if not (symbolic(x) or symbolic(y)):
        return NotImplemented
    return x // y, x % y
