"""What Python and torch ask of a number that data decides: `if n > 0:`, `n == 1`, whether a position is in range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.decisions.ask import forking
from onnxpatch.decisions.place import deciding_frame
from onnxpatch.formulas.symbolic import assume


def _counted(batch: int, most: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, most), torch.arange(batch) - 1


def _summed(x: Tensor, counts: Tensor) -> Tensor:
    """The mean, and the sum of as many rows as are counted, if there are any."""
    count: Any = counts.abs().sum().item()
    total = x.mean(0)
    if count > 0:
        total = total + x[:count].sum(0)
    return total


@op(
    "SymBool.__bool__",
    name="data-questions",
    exporters=("dynamo",),
    why="Could not guard on data-dependent expression u0 > 0, Eq(u0, 1): an if on a number that data decides, the "
    "model's or torch's own",
    reason="data-dependent expression",
    link="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export/programming_model.html",
    tries=_counted,
    sizes=((4, 3), (5, 2), (2, 7), (1, 4)),
    case=_summed,
)
def data_question(original: Callable[[Any], bool], value: object) -> bool:
    """Answers as for a number of some size: not 0, not 1, equal to no other one, inside of what it indexes."""
    # 1: past the stand-in that calls this. torch's own questions are no branches of the model.
    if not isinstance(value, torch.SymBool) or (forking() and deciding_frame(1) is not None):
        return NotImplemented
    answer = assume(value)
    return NotImplemented if answer is None else answer
