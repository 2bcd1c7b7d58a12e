"""`x.data`, which takes a tensor out of the recording of torch.jit.trace."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


class _Pairs(torch.nn.Module):
    """Sizes read off `x.data`, and values."""

    def forward(self, x: Tensor) -> Tensor:
        batch, length = x.data.shape
        return x.view(batch, length // 2, 2).softmax(1) * x.data.mean(1)[:, None, None]


@patch(
    "torch.Tensor.data",
    name="plain-data",
    why="x.data.shape has the sizes of the example, and x.data its values: constants of the graph",
    link="https://github.com/pytorch/pytorch/issues/22097",
    exporters=("trace",),
    proof=Proof(
        _Pairs,
        lambda: [(torch.randn(b, n),) for b, n in ((2, 6), (3, 8), (1, 2))],
        ({0: "batch", 1: "length"},),
        fails=("trace",),
        reason="reshaped|broadcast|relative error",
        unchanged=lambda: Computes(lambda x: x.detach() * 2),
    ),
)
def plain_data(original: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """The tensor without a gradient, recorded. Those of weights are constants anyway."""
    return NotImplemented if tensor.requires_grad and tensor.is_leaf else tensor.detach()
