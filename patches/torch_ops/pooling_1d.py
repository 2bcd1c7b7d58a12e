"""Max pooling of sequences of dynamic length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


class _Sequences(torch.nn.Module):
    """Windows that overlap, with padding, and of a sequence without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.MaxPool1d(3, 2, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        halves = torch.max_pool1d(x[0], 2, ceil_mode=True)
        return self.pool(x), functional.max_pool1d(x, 2, stride=1, dilation=2), halves


@patch(
    "torch.max_pool1d",
    "torch.nn.functional.max_pool1d",
    name="max-pooling-of-sequences",
    why="Constraints violated (L['x'].size()[2]): torch's max_pool1d takes the length of the example",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/MaxPooling.cpp",
    exporters=("dynamo",),
    proof=Proof(
        _Sequences,
        lambda: [(torch.randn(batch, 4, length),) for batch, length in ((2, 16), (3, 9), (1, 4))],
        ({0: "batch", 2: "length"},),
        fails=("dynamo",),
        reason="Constraints violated|static shape|specialized",
        unchanged="fixed sizes",
    ),
)
def max_pool1d(
    original: object,
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The same pooling of an image of one row, which keeps its sizes."""
    if return_indices or not any(map(symbolic, input.shape)):
        return NotImplemented
    window, step, pad, spread = (_number(one) for one in (kernel_size, stride or kernel_size, padding, dilation))
    if symbolic(window):
        return NotImplemented
    image = functional.max_pool2d(input.unsqueeze(-2), (1, window), (1, step), (0, pad), (1, spread), ceil_mode)
    return image.squeeze(-2)


def _number(one: object) -> Any:
    return one[0] if isinstance(one, tuple | list) else one
