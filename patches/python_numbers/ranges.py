"""range() of one step, where the step is a dynamic size: `range(0, n, n)`, for an input in a single chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import one_step


class _Frames(torch.nn.Module):
    """Audio in frames of a given length, or in one."""

    def forward(self, x: Tensor, frame: Any = None) -> Tensor:
        length = x.shape[1]
        frame = frame or length
        return torch.cat([x[:, at : at + frame].softmax(1) for at in range(0, length, frame)], 1)


@patch(
    "builtins.range",
    name="whole-range",
    why="range(0, n, n): inferred a static shape, torch.export keeps the length of the example",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/encodec/modeling_encodec.py",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Frames,
        lambda: [(torch.randn(b, n),) for b, n in ((2, 5), (3, 9), (1, 1))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo",),
        reason="inferred a static shape",
        unchanged=lambda: Computes(lambda x: torch.cat([x[:, at : at + 2] for at in range(0, 4, 2)], 1)),
    ),
)
def whole_range(original: Callable[..., object], *bounds: Any) -> object:
    """`range(start, start + step, step)` of a dynamic step has one number, `start`."""
    return (bounds[0],) if one_step(bounds) else NotImplemented
