"""Adaptive pooling of maps of any size to any output size: the graph computes which cells a window covers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.pooled_maxima import largest_under
from onnxpatch.formulas.resize import Axis, resize

LINK = "https://github.com/pytorch/pytorch/issues/64806"
WHY = (
    "Unsupported: ONNX export of operator adaptive_avg_pool2d, input size not accessible / output size that are not "
    "factor of input size; with dynamic sizes the windows of the example stay"
)


class _Pyramid(torch.nn.Module):
    """Pooled to several grids, as PSPNet, UPerNet and spatial pyramids do."""

    def __init__(self, pool: Callable[..., Tensor]) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.pool(x, size) for size in (1, 3, (2, 4), (None, 2)))


def _maps() -> list[tuple[Tensor]]:
    # Windows of one length, windows of two, and a map with fewer cells than windows.
    return [(torch.randn(2, 3, *size),) for size in ((7, 10), (4, 5), (3, 3), (12, 9))]


def _proof(pool: Callable[..., Tensor]) -> Proof:
    sizes = ({0: "b", 2: "h", 3: "w"},)
    return Proof(
        lambda: _Pyramid(pool),
        inputs=_maps,
        dynamic_shapes=sizes,
        fails=("dynamo", "trace"),
        reason="GatherND|static shape|adaptive_(avg|max)_pool2d",
        unchanged="fixed sizes",
    )


@patch(
    "torch.nn.functional.adaptive_avg_pool1d",
    "torch.nn.functional.adaptive_avg_pool2d",
    "torch.nn.functional.adaptive_avg_pool3d",
    name="adaptive-average-pooling",
    why=WHY,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=_proof(torch.nn.functional.adaptive_avg_pool2d),
)
def adaptive_average(original: Callable[..., Tensor], input: Tensor, output_size: object) -> Tensor:
    """Computes the means by one matrix product for each axis."""
    # The digit in adaptive_avg_pool2d.
    spatial = int(original.__name__[-2])
    sizes = _sizes(input, output_size, spatial)
    if not _ours(input, sizes):
        return NotImplemented
    # torch takes a single map without a batch, too.
    batched = input if input.dim() == spatial + 2 else input[None]
    pooled = resize(batched, [Axis(size) for size in sizes], "area")
    return pooled if batched is input else pooled[0]


@patch(
    "torch.nn.functional.adaptive_max_pool1d",
    "torch.nn.functional.adaptive_max_pool2d",
    "torch.nn.functional.adaptive_max_pool3d",
    name="adaptive-max-pooling",
    why=WHY,
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=_proof(torch.nn.functional.adaptive_max_pool2d),
)
def adaptive_max(
    original: Callable[..., object], input: Tensor, output_size: object, return_indices: bool = False
) -> object:
    """Computes the maximum in each window, one axis after the other."""
    spatial = int(original.__name__[-2]) if original.__name__[-1] == "d" else input.dim() - 2
    sizes = _sizes(input, output_size, spatial)
    # The indices are those of the whole map, which a maximum axis by axis does not know.
    if return_indices or not input.is_floating_point() or not _ours(input, sizes):
        return NotImplemented
    # A maximum over a rectangle is the maximum over its rows' maxima, so axes may be taken one by one.
    for position, size in enumerate(sizes):
        input = _largest(input, position - spatial, size)
    return input


def _largest(x: Tensor, dim: int, size: object) -> Tensor:
    if isinstance(size, int) and size == 1:
        # One window covers all: nothing has to be gathered.
        return x.amax(dim, keepdim=True)
    return largest_under(x, dim, size)


def _sizes(input: Tensor, output_size: object, spatial: int) -> list[object]:
    asked = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * spatial
    lengths = input.shape[-spatial:]
    # None keeps the size of that axis.
    return [length if size is None else size for size, length in zip(asked, lengths, strict=True)]


def _ours(input: Tensor, sizes: list[object]) -> bool:
    """Whether windows depend on a dynamic size. One global window is right without a patch."""
    if all(isinstance(size, int) and size == 1 for size in sizes):
        return False
    # Under trace a dynamic size looks like a static one: both are tensors.
    numbers = (*sizes, *input.shape[-len(sizes) :])
    return exporting() == "trace" or not all(isinstance(number, int) for number in numbers)
