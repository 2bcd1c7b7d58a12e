"""Max pooling and unpooling, average pooling with divisor_override, and layers without a batch axis."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import Proof, op, untraced
from onnxpatch.formulas.symbolic import function_name, symbolic
from onnxpatch.formulas.windows import on_each_axis
from onnxpatch.patching.proof import computing, maps

_ATEN = torch.ops.aten


class _Sequences(torch.nn.Module):
    """Windows that overlap, with padding, and of a sequence without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = torch.nn.MaxPool1d(3, 2, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        halves = torch.max_pool1d(x[0], 2, ceil_mode=True)
        return self.pool(x), functional.max_pool1d(x, 2, stride=1, dilation=2), halves


@op(
    "max_pool1d",
    name="max-pooling-of-sequences",
    why="Constraints violated (L['x'].size()[2]): torch's max_pool1d takes the length of the example",
    reason="Constraints violated|static shape|specialized",
    link="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/MaxPooling.cpp",
    exporters=("dynamo",),
    tries=lambda batch, length: torch.randn(batch, 4, length),
    sizes=((2, 16), (3, 9), (1, 4)),
    case=_Sequences,
    unchanged="fixed sizes",
)
def max_pool1d(
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
    given = (kernel_size, stride or kernel_size, padding, dilation)
    (window,), (step,), (pad,), (spread,) = (on_each_axis(one, 1) for one in given)
    if symbolic(window):
        return NotImplemented
    image = functional.max_pool2d(input.unsqueeze(-2), (1, window), (1, step), (0, pad), (1, spread), ceil_mode)
    return image.squeeze(-2)


class _Unpooled(torch.nn.Module):
    """SegNet's and QuickNAT's way: pooled with the places kept, and back; once to an odd size that is given."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        small, places = functional.max_pool2d(x, 2, return_indices=True)
        odd = functional.pad(x, (0, 1, 0, 1))
        cut, cut_places = functional.max_pool2d(odd, 2, return_indices=True)
        back = functional.max_unpool2d(small.exp(), places, (2, 2))
        return back, functional.max_unpool2d(cut, cut_places, (2, 2), output_size=list(odd.shape[2:]))


@op(
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    name="max-unpool",
    why="cond must be a bool, but got a Tensor; Exporting the operator 'aten::max_unpool2d' to ONNX opset version 18 "
    "is not supported",
    link="https://github.com/pytorch/pytorch/issues/25088",
    proof=Proof(
        _Unpooled,
        lambda: [(torch.randn(b, 3, h, w),) for b, h, w in ((2, 8, 6), (1, 4, 10), (3, 4, 4))],
        fails=("trace",),
        # dynamo is right without it, and must stay so.
        exporters=("dynamo",),
        reason="must be a bool|aten::max_unpool2d",
        unchanged=lambda: computing(lambda x: functional.max_pool2d(x, 2)),
    ),
)
def max_unpool(
    original: Callable[..., Tensor],
    input: Tensor,
    indices: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    output_size: Any = None,
) -> Tensor:
    """Scatters the values over the places of one map, as one axis."""
    rank = int(original.__name__.removesuffix("d")[-1])
    lead = input.dim() - rank
    if output_size is None:
        kernel = on_each_axis(kernel_size, rank)
        steps, pads = on_each_axis(kernel if stride is None else stride, rank), on_each_axis(padding, rank)
        sizes = [(input.shape[lead + i] - 1) * steps[i] - 2 * pads[i] + kernel[i] for i in range(rank)]
    else:
        sizes = list(output_size)[-rank:]
    front = list(input.shape[:lead])
    empty = input.new_zeros([*front, math.prod(sizes)])
    # Max pooling counts its places within one map, so each map is one row.
    return empty.scatter(-1, indices.flatten(lead), input.flatten(lead)).reshape([*front, *sizes])


class _Alone(nn.Module):
    """One image [4, h, w], and its first channel as sequences [h, w]."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList([nn.MaxPool2d(3, 2), nn.AvgPool2d(2), nn.LPPool2d(2, 3), nn.PixelShuffle(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        pooled = [pool(x).mean() for pool in self.pools]
        rows = functional.max_pool1d(x[0], 2), functional.avg_pool1d(x[0], 3), functional.adaptive_avg_pool1d(x[0], 1)
        return (*pooled, *rows, functional.lp_pool3d(x[None], 2, 2))


_AXES = {
    "max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
    "lp_pool1d": 1, "lp_pool2d": 2, "lp_pool3d": 3,
    "adaptive_avg_pool1d": 1, "adaptive_avg_pool2d": 2, "adaptive_avg_pool3d": 3,
    "max_pool1d_with_indices": 1, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
    "pixel_shuffle": 2, "pixel_unshuffle": 2, "fold": 1,
}  # fmt: skip
_row = functools.partial(
    op,
    link="https://github.com/pytorch/pytorch/issues/60585",
    tries=lambda height, width: torch.randn(4, height, width),
    sizes=((8, 9), (11, 6), (5, 14)),
)


@_row(
    "max_pool1d", "max_pool2d", "max_pool3d", "nn.functional.avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d",
    "lp_pool2d", "lp_pool3d", "nn.functional.adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "nn.functional.max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices", "pixel_shuffle",
    "pixel_unshuffle", "fold",
    name="without-batch",
    why="Input tensor must have at least 3 dimensions: a pool of a sequence without a batch axis",
    reason="only support 4d|incorrect number of values",
    exporters=("trace",),
    case=_Alone,
    beside=("adaptive-average-pooling", "max-pooling-of-sequences"),
    unchanged=lambda x: functional.max_pool2d(x[None], 2),
)  # fmt: skip
def without_batch(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of a batch of one."""
    name = function_name(original)
    return _alone(name, input, args, kwargs) if input.dim() == _AXES[name] + 1 else NotImplemented


@_row(
    "nn.functional.unfold",
    "pad",
    name="windows-without-batch",
    why="Pads has incorrect number of values: circular padding of a sequence without a batch axis; windows of an image",
    reason="incorrect number of values",
    case=lambda x: (functional.pad(x[0], (1, 1), mode="circular"), functional.unfold(x, 2)),
    unchanged=lambda x: functional.unfold(x[None], 2),
)
def windows_without_batch(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of a batch of one."""
    name, axes = function_name(original), 2
    if name == "pad":
        given = {**dict(zip(("pad", "mode"), args, strict=False)), **kwargs}
        axes = len(given["pad"]) // 2 if given.get("mode") == "circular" else -1
    return _alone(name, input, args, kwargs) if input.dim() == axes + 1 else NotImplemented


def _alone(name: str, input: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # By its public name, so that other patches act on it.
    found = getattr(functional if hasattr(functional, name) else torch, name)(input[None], *args, **kwargs)
    return tuple(one[0] for one in found) if isinstance(found, tuple) else found[0]


_divided = functools.partial(functional.avg_pool2d, divisor_override=2)


def _divided_pools(x: Tensor) -> tuple[Tensor, ...]:
    third = functional.avg_pool3d(torch.stack((x, x * 2), -1), (3, 2, 1), 2, (1, 0, 0), divisor_override=5)
    return _divided(x, 3, 1, 1), _divided(x, 3, 2, 0, True), _divided(x, (3, 2), (2, 3), (1, 0), True), third


@op(
    "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d",
    name="average-by-divisor",
    why="relative error 0.8: divisor_override is left out",
    reason="relative error",
    tries=lambda b, h, w: torch.randn(b, 2, h + 3, w + 3),
    case=_divided_pools,
    unchanged=lambda x: functional.avg_pool2d(x, 3, 1, 1),
)
def average_by_divisor(
    original: Callable[..., Tensor], input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The sum of each window by `divisor_override`."""
    if divisor_override is None:
        return NotImplemented
    axes = 3 if "3d" in function_name(original) else 2
    given = (kernel_size, kernel_size if stride is None or stride == () else stride, padding)
    windows, steps, pads = (on_each_axis(one, axes) for one in given)
    # A window begins in the map or in the padding before it, and ends in what is padded for `ceil_mode`. No more than
    # that: onnxruntime takes the padding into its pool, and of that less than a window.
    more = [
        min(step - 1, window - 1 - pad) if ceil_mode else 0
        for window, step, pad in zip(windows, steps, pads, strict=True)
    ]
    ends = [end for axis in reversed(range(axes)) for end in (pads[axis], pads[axis] + more[axis])]
    x = functional.pad(input, ends) if any(ends) else input
    pooled = getattr(functional, function_name(original))(x, windows, steps)
    return pooled * (math.prod(windows) / divisor_override)


def _pooled_back(x: Tensor) -> Tensor:
    values, places = functional.max_pool2d(x, 3, 2, 1, return_indices=True)
    return _ATEN.max_pool2d_with_indices_backward(values * 2, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)


@op(
    "ops.aten.max_pool2d_with_indices_backward",
    "ops.aten.max_pool2d_with_indices_backward.default",
    name="max-pool-backward",
    why=untraced("aten::max_pool2d_with_indices_backward"),
    tries=maps,
    case=_pooled_back,
)
def max_pool_backward(grad_output: Tensor, self: Tensor, *options: Any) -> Tensor:
    """Each maximum's slope added at its place in its map."""
    places = options[-1]
    empty = torch.zeros_like(self).flatten(-2)
    return empty.scatter_add(-1, places.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)
