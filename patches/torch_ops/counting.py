"""bincount and histc: each element adds one to its bin, by one scatter over the elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch


class _Counted(torch.nn.Module):
    def forward(self, x: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        return torch.bincount(x, minlength=4), x.bincount(weights), torch.bincount(x)


@patch(
    "torch.bincount",
    "torch.Tensor.bincount",
    name="bincount",
    why="Exporting the operator 'aten::bincount' to ONNX is not supported; No ONNX function found for aten.bincount",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Counted,
        # In the last there are more bins by minlength than by the numbers.
        inputs=lambda: [(torch.arange(n) * 3 % most, torch.randn(n)) for n, most in ((8, 7), (11, 19), (1, 2))],
        dynamic_shapes=({0: "n"}, {0: "n"}),
        fails=("dynamo", "trace"),
        reason="aten::bincount",
    ),
)
def bincount(
    original: Callable[..., Tensor], input: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """Counts 0 ... max(input). Under dynamo the number of bins is a size that depends on data."""
    places = input.to(torch.int64)
    # One more entry, so that an empty input has a maximum.
    longest = torch.cat((places, places.new_full((1,), -1))).amax(0) + 1
    count: Any = torch.clamp(longest, min=minlength)
    if exporting() == "dynamo":
        count = count.item()
        # A number out of data may be a size only once it is known not to be negative.
        torch._check(count >= 0)
    # In eager, weights of any dtype but float32 are summed in float64, and so is what comes out.
    wide = weights is None or weights.dtype == torch.float32
    ones = torch.ones_like(places) if weights is None else weights if wide else weights.double()
    return torch.zeros([count], dtype=ones.dtype, device=ones.device).scatter_add(0, places, ones)


class _Histogram(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.histc(x, bins=5, min=-1.0, max=1.5), x.histc(7)


@patch(
    "torch.histc",
    "torch.Tensor.histc",
    name="histc",
    why="Exporting the operator 'aten::histc' to ONNX is not supported; No ONNX function found for aten.histc",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Histogram,
        inputs=lambda: [(torch.randn(n),) for n in (30, 90, 3)],
        dynamic_shapes=({0: "n"},),
        fails=("dynamo", "trace"),
        reason="aten(::|_)histc",
    ),
)
def histc(original: Callable[..., Tensor], input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts elements in bins by torch's formula. Without limits, bins go from the smallest to the largest element."""
    if input.dtype not in (torch.float32, torch.float64):
        return NotImplemented  # eager finds the bins in half precision, with roundings of its own
    x = input.flatten()
    # torch means by 0 and 0 that no limits are given.
    free = min == 0 and max == 0
    low, high = (x.amin(0), x.amax(0)) if free else (torch.full_like(x[:1], min), torch.full_like(x[:1], max))
    equal = high == low
    # All elements equal, or limits: torch widens the range by 1 on both sides.
    low, high = torch.where(equal, low - 1, low), torch.where(equal, high + 1, high)
    inside = (x >= low) & (x <= high)
    # One more bin takes elements outside the limits. The upper limit belongs to the last bin.
    places = ((x - low) * bins / (high - low)).to(torch.int64).clamp(0, bins - 1)
    return torch.zeros_like(x[:1]).expand([bins]).clone().scatter_add(0, places, inside.to(x.dtype))
