"""An exact resize for position tables and pooling: `Wh @ P @ Ww.T`, with weights computed from `arange` in the graph.

ONNX's Resize is slow or missing in runtimes in its cubic form. A resize is linear and separable: two small matrices do
the same at any output size, with MatMul and elementwise operators only. A table is resized for any image size, or
stored for one: `form_of`. The formulas are those of torch.nn.functional.interpolate and adaptive_avg_pool
(aten/src/ATen/native/UpSample.h).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from onnxpatch._torch import pytree
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch.errors import InputError
from onnxpatch.settings import Settings

Mode = Literal["nearest", "nearest-exact", "linear", "cubic", "area"]
# int, torch.SymInt, or under torch.jit.trace a 0-d tensor
Size = Any
# float, torch.SymFloat or a 0-d tensor
Scale = Any
# The one-axis kernel of a mode of F.interpolate.
_KERNELS: dict[str, Mode] = {
    "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic", "nearest": "nearest",
    "nearest-exact": "nearest-exact", "area": "area",
}  # fmt: skip
FORMS = ("dynamic", "static")


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    size: output size. scale: the scale factor of the call, by which torch places the sampling points; None for the
    ratio of the sizes. native: 0-d bool tensor, True where the axis is to be copied; or None.
    """

    size: Size
    scale: Scale = None
    native: Tensor | None = None


def resize(
    table: Tensor,
    axes: Sequence[Axis],
    mode: str = "bicubic",
    *,
    align_corners: bool | None = False,
    antialias: bool = False,
    channels_last: bool = False,
) -> Tensor:
    """`table` [N, C, *spatial], resized along its spatial axes as F.interpolate does it, to 1e-5.

    channels_last: multiply in [N, *spatial, C] order. Faster if the caller has permuted the table from it.
    Half precision is computed in float32 and returned in the table's dtype, as eager does.
    """
    work = table if table.dtype in (torch.float32, torch.float64) else table.float()
    kernel = _KERNELS[mode]
    weights = [
        weight_matrix(work.shape[position + 2], axis, kernel, bool(align_corners), antialias, work)
        for position, axis in enumerate(axes)
    ]
    apply = _apply_channels_last if channels_last and len(axes) == 2 else _apply
    return apply(work, weights).to(table.dtype)


def weight_matrix(
    size_in: Size, axis: Axis, kernel: Mode, align_corners: bool, antialias: bool, like: Tensor
) -> Tensor:
    """The matrix [out, in], of dtype and device of `like`, that resizes one axis of `size_in` elements."""
    outputs = torch.arange(axis.size, device=like.device)
    inputs = torch.arange(size_in, device=like.device)
    if kernel == "area":
        member = pool_members(outputs, inputs).to(like.dtype)
        return member / member.sum(dim=1, keepdim=True)
    grid = _Grid(outputs.to(like.dtype), inputs.to(like.dtype), size_in, axis, align_corners)
    weights = _antialiased(grid, kernel) if antialias else _SAMPLED[kernel](grid)
    copied = grid.copied(kernel, antialias)
    if copied is None:
        return weights
    identity = (outputs[:, None] == inputs[None, :]).to(like.dtype)
    return torch.where(copied, identity, weights)


class _Grid:
    """Sampling points of one axis: output indices [out], input indices [in], and the step between points."""

    def __init__(self, outputs: Tensor, inputs: Tensor, size_in: Size, axis: Axis, align_corners: bool) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.size_in = size_in
        self.axis = axis
        self.align_corners = align_corners
        # Counted in the graph: a Python float of a symbolic size would freeze it.
        self.last_in = inputs.amax(dim=0)
        self.count_in = self.last_in + 1
        self.count_out = outputs.amax(dim=0) + 1
        self.step = self._step()

    def _step(self) -> Tensor:
        if self.align_corners:
            gaps = self.count_out - 1
            # One output has no gap: its step is 0, here without a branch on the size.
            return (self.count_in - 1) / gaps.clamp(min=1) * gaps.clamp(max=1)
        if self.axis.scale is None:
            return self.count_in / self.count_out
        inverse = 1.0 / self.axis.scale  # rounded to float32 only after the division, as in torch
        if isinstance(inverse, Tensor):
            return inverse.to(self.inputs.dtype)
        return self.count_in.new_ones(()) * inverse

    def centres(self) -> Tensor:
        """Where output i samples the input, in input indices [out]."""
        if self.align_corners:
            return self.outputs * self.step
        return (self.outputs + 0.5) * self.step - 0.5

    def copied(self, kernel: Mode, antialias: bool) -> Tensor | None:
        """Whether torch copies the axis instead of sampling it (0-d bool); None if sampling gives the same."""
        scaled = self.axis.scale is not None and not self.align_corners
        # torch copies an axis whose size is unchanged, whatever the scale, except for plain cubic and nearest-exact.
        copies = antialias or (scaled and kernel in ("linear", "nearest"))
        return self.count_in == self.count_out if copies else self.axis.native


def _cubic(distance: Tensor, a: float) -> Tensor:
    # The piecewise cubic as two truncated powers: half the nodes of two pieces and a comparison.
    outer = torch.relu(2 - distance)
    inner = torch.relu(1 - distance)
    return outer * outer * (a - a * outer) + inner * inner * ((4 * a + 3) - 2 * inner)


def _sampled_linear(grid: _Grid) -> Tensor:
    # With points clamped to the table, the hat function gives border elements their full weight.
    points = torch.minimum(torch.relu(grid.centres()), grid.last_in)
    return torch.relu(1 - (points[:, None] - grid.inputs[None, :]).abs())


def _sampled_cubic(grid: _Grid) -> Tensor:
    # The border is repeated, and the kernel reaches two elements beyond it: compute the weights of a longer row, and
    # add those outside to the border's.
    reach = torch.arange(grid.size_in + 4, device=grid.inputs.device) - 2
    # torch's cubic kernel has a = -0.75, and -0.5 with antialiasing, as PIL's.
    weights = _cubic((grid.centres()[:, None] - reach.to(grid.inputs.dtype)[None, :]).abs(), -0.75)
    border = torch.minimum(torch.relu(reach.to(grid.inputs.dtype)), grid.last_in)
    fold = (border[:, None] == grid.inputs[None, :]).to(weights.dtype)
    return torch.matmul(weights, fold)


def _one_hot(grid: _Grid, points: Tensor) -> Tensor:
    chosen = torch.minimum(points.floor(), grid.last_in)
    return (chosen[:, None] == grid.inputs[None, :]).to(grid.inputs.dtype)


_SAMPLED: dict[str, Callable[[_Grid], Tensor]] = {
    "linear": _sampled_linear,
    "cubic": _sampled_cubic,
    "nearest": lambda grid: _one_hot(grid, grid.outputs * grid.step),
    "nearest-exact": lambda grid: _one_hot(grid, (grid.outputs + 0.5) * grid.step),
}


def _antialiased(grid: _Grid, kernel: Mode) -> Tensor:
    # The kernel is widened when shrinking, and centred the same way with and without align_corners.
    centres = (grid.outputs + 0.5) * grid.step
    distance = (grid.inputs[None, :] + 0.5 - centres[:, None]).abs() / grid.step.clamp(min=1)
    weights = torch.relu(1 - distance) if kernel == "linear" else _cubic(distance, -0.5)
    # At the border a part of the kernel is outside: torch gives its weight to the rest.
    return weights / weights.sum(dim=1, keepdim=True)


def pool_members(outputs: Tensor, inputs: Tensor) -> Tensor:
    """Which inputs belong to each output of an adaptive pooling: bool [out, in]. outputs, inputs: their indices."""
    count_out, count_in = outputs.amax(dim=0) + 1, inputs.amax(dim=0) + 1
    starts = torch.div(outputs * count_in, count_out, rounding_mode="floor")
    # ceil((i + 1) n / m) in whole numbers: in floats it is one too many at some sizes.
    ends = torch.div((outputs + 1) * count_in + count_out - 1, count_out, rounding_mode="floor")
    return (inputs[None, :] >= starts[:, None]) & (inputs[None, :] < ends[:, None])


def _apply(work: Tensor, weights: Sequence[Tensor]) -> Tensor:
    # One axis after the other: the product of all weights would be a matrix [outputs, inputs] of whole images.
    work = torch.matmul(work, weights[-1].transpose(0, 1))
    if len(weights) > 1:
        work = torch.matmul(weights[-2], work)
    if len(weights) > 2:
        # Of three axes two are taken as one row: MatMul multiplies the last two dimensions only.
        work = torch.matmul(weights[0], work.flatten(-2)).unflatten(-1, (weights[-2].shape[0], weights[-1].shape[0]))
    return work


def _apply_channels_last(work: Tensor, weights: Sequence[Tensor]) -> Tensor:
    tall, wide = weights
    work = work.permute(0, 2, 3, 1)
    count, width, channels = work.shape[0], work.shape[2], work.shape[3]
    # One table as a matrix [height, width * channels]: runtimes prepack a constant matrix when they load the file.
    single = isinstance(count, int) and count == 1
    rows = torch.matmul(tall, work.flatten(2).squeeze(0) if single else work.flatten(2))
    resized = torch.matmul(wide, rows.unflatten(-1, (width, channels)))
    return (resized.unsqueeze(0) if single else resized).permute(0, 3, 1, 2)


def form_of(settings: Settings, patch: str) -> str | None:
    """`form=` for the patch of this name: "dynamic", "static", or None if it was not given.

    `form` is one of them for the whole model, or a mapping from names of patches. Raises InputError for other values.
    """
    asked = settings.options.get("form")
    form = asked.get(patch) if isinstance(asked, Mapping) else asked
    # Who states an image size wants tables stored for it.
    if form is None and settings.image_size is not None:
        return "static"
    if form is not None and form not in FORMS:
        raise InputError(
            f"form={form!r} is not known: use 'dynamic' or 'static', or a mapping from patch names to them"
        )
    return None if form is None else str(form)


def check_example(image_size: tuple[int, int], inputs: object) -> None:
    """Raises InputError if tables are to be stored for `image_size` and the example has no image of that size."""
    # Paused, sizes are ints. Under trace they are tensors otherwise, and reading them adds nodes to the graph.
    with tracing_paused():
        leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.dim() >= 4]
        sizes = [tuple(leaf.shape[-3:]) for leaf in leaves]
    # Without symbolic ones, which fail by themselves.
    images = [size for size in sizes if all(isinstance(length, int) for length in size)]
    wanted = tuple(image_size)
    # Channels first or channels last: the two sizes are the last of three, or the first.
    if images and not any(wanted in (size[1:], size[:2]) for size in images):
        found = " and ".join("x".join(map(str, size)) for size in images)
        height, width = wanted
        raise InputError(
            f"image_size=({height}, {width}), but the example that is exported holds {found}: position tables are "
            f"stored for the size that they are asked for; export with an image of {height} by {width}"
        )
