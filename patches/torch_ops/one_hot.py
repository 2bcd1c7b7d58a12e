"""F.one_hot with a dynamic number of classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import symbolic


class _Blocks(torch.nn.Module):
    """The sum of each block of three tokens; what is left over belongs to no block."""

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[1] // 3
        blocks = torch.div(torch.arange(x.shape[1]), 3, rounding_mode="trunc").clamp(max=count)
        return torch.nn.functional.one_hot(blocks, count + 1)[:, :-1].to(x.dtype).transpose(0, 1) @ x


@patch(
    "torch.nn.functional.one_hot",
    name="one-hot-dynamic-classes",
    why="F.one_hot(x, n // 3 + 1) keeps the number of classes of the example",
    link="https://github.com/pytorch/pytorch/issues/89254",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Blocks,
        lambda: [(torch.randn(b, n, 2),) for b, n in ((2, 7), (3, 12), (1, 4))],
        ({0: "batch", 1: "length"},),
        fails=("trace",),
        exporters=("dynamo",),
        reason="at \\[|shape|relative error|onnxruntime fails|dimension",
        unchanged=lambda: Computes(lambda x: torch.nn.functional.one_hot(x.argmax(1).clamp(max=4), 5)),
    ),
)
def one_hot(original: Callable[..., Tensor], tensor: Tensor, num_classes: object = -1) -> Tensor:
    """(...) whole numbers to (..., num_classes) of zeros and ones, by comparison with each class."""
    if not symbolic(num_classes):
        return NotImplemented
    classes = torch.arange(num_classes, dtype=tensor.dtype, device=tensor.device)  # type: ignore[call-overload]
    return (tensor[..., None] == classes).to(torch.int64)
