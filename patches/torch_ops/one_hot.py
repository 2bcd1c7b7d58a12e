"""torch.nn.functional.one_hot into a number of classes that is a size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


class _Blocks(torch.nn.Module):
    """The sum of every three tokens."""

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        block = torch.arange(length) // 3
        return x.transpose(1, 2) @ torch.nn.functional.one_hot(block, (length + 2) // 3).to(x.dtype)


@patch(
    "torch.nn.functional.one_hot",
    name="one-hot-of-a-size",
    why="Eq(s27//4, 2): torch's one_hot takes a number of classes as a constant, that of the example",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/Onehot.cpp",
    exporters=("dynamo",),
    proof=Proof(
        _Blocks,
        lambda: [(torch.randn(batch, length, 4),) for batch, length in ((2, 7), (3, 12), (1, 2))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo",),
        reason="shape|relative error",
        unchanged="fixed sizes",
    ),
)
def one_hot(original: object, input: Tensor, num_classes: Any = -1) -> Tensor:
    """Every class is compared with every element. A number of classes that is a constant is left to the exporter."""
    if not symbolic(num_classes):
        return NotImplemented
    return (input[..., None] == torch.arange(num_classes, device=input.device)).to(torch.int64)
