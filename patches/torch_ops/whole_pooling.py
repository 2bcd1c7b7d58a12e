"""Pooling over a whole axis, written with its size as the window: `F.avg_pool2d(x, x.shape[2:])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import same_size

WHY = (
    "because it is not constant. Please try to make things (e.g. kernel sizes) static if possible; under dynamo the "
    "window is the example's: Constraints violated"
)
LINK = "https://github.com/pytorch/pytorch/issues/47887"


class _Global(torch.nn.Module):
    """One value for each channel, one for each row, and halves of the rows."""

    def __init__(self, pool: Callable[..., Tensor]) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        height, width = x.shape[2:]
        return self.pool(x, (height, width)), self.pool(x, (1, width)), self.pool(x, kernel_size=[2, width])


def _proof(pool: Callable[..., Tensor]) -> Proof:
    return Proof(
        lambda: _Global(pool),
        lambda: [(torch.randn(b, 3, *size),) for b, size in ((2, (8, 6)), (1, (5, 9)), (3, (2, 1)))],
        ({0: "batch", 2: "height", 3: "width"},),
        fails=("dynamo", "trace"),
        reason="not constant|Constraints violated|static shape|specialized",
        unchanged=lambda: Computes(lambda x: pool(x, 2)),
    )


@patch(
    "torch.nn.functional.avg_pool1d",
    "torch.nn.functional.avg_pool2d",
    "torch.nn.functional.avg_pool3d",
    name="average-of-whole-axes",
    why=WHY,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=_proof(functional.avg_pool2d),
)
def average(
    original: Callable[..., Tensor],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: object = None,
) -> Tensor:
    """The mean over the axes whose window is the whole axis; the window of the others as it is."""
    found = _whole(input, kernel_size, stride, padding)
    if found is None or divisor_override is not None:
        return NotImplemented
    return _others(original, input.mean(found[0], keepdim=True), found, ceil_mode, count_include_pad)


@patch(
    "torch.nn.functional.max_pool1d",
    "torch.nn.functional.max_pool2d",
    "torch.nn.functional.max_pool3d",
    name="maximum-of-whole-axes",
    why=WHY,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=_proof(functional.max_pool2d),
)
def largest(
    original: Callable[..., object],
    input: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> object:
    """The maximum over the axes whose window is the whole axis; the window of the others as it is."""
    found = _whole(input, kernel_size, stride, padding)
    # Indices would count places of the whole input; a window with gaps is longer than the axis.
    if found is None or return_indices or dilation not in (1, (1, 1), [1, 1]):
        return NotImplemented
    return _others(original, input.amax(found[0], keepdim=True), found, 1, ceil_mode)


Windows = tuple[tuple[int, ...], list[int], list[int], list[int]]


def _whole(input: Tensor, kernel_size: object, stride: object, padding: object) -> Windows | None:
    """(axes that a window covers whole, and the window, step and padding of each axis once these have one element).

    None where there is no such axis, where one is padded, or where another window depends on a size.
    """
    if not isinstance(kernel_size, tuple | list):
        return None
    rank = len(kernel_size)
    kernel, pads = list(kernel_size), _each(padding, rank)
    steps = list(kernel) if stride is None or stride in ((), []) else _each(stride, rank)
    axes = []
    for place, window in enumerate(kernel):
        if isinstance(window, int):
            continue
        # With padding, an average divides by more than the axis has, and a longer axis has several windows.
        if not same_size(window, input.shape[place - rank]) or pads[place] != 0:
            return None
        axes.append(place - rank)
        # One element is left, which the pooling of the other axes passes on.
        kernel[place], steps[place] = 1, 1
    return (tuple(axes), kernel, steps, pads) if axes else None


def _others(original: Callable[..., object], pooled: Tensor, windows: Windows, *more: object) -> Any:
    """The axes that are not whole, by the function itself with these further arguments."""
    _, kernel, steps, pads = windows
    return pooled if all(n == 1 for n in kernel) else original(pooled, kernel, steps, pads, *more)


def _each(value: object, rank: int) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value] * rank
