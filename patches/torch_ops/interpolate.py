"""F.interpolate with dynamic sizes: position tables by two MatMuls, images, also antialiased, by ONNX's Resize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, Settings, When, exporting, op, patch, running_model, untraced
from onnxpatch.decisions.if_rules.noop_resizes import skipped_here
from onnxpatch.formulas import interpolation
from onnxpatch.formulas.nodes import target_opset
from onnxpatch.formulas.resize import Axis, form_of, resize
from onnxpatch.formulas.symbolic import (
    as_tensor,
    constant,
    scaled,
    split_fraction,
    symbolic,
    traced_from,
    tracing_paused,
    unrecorded,
)

_ATEN = torch.ops.aten

SMOOTH = ("linear", "bilinear", "bicubic", "trilinear")


class _Table(torch.nn.Module):
    """A learned table, interpolated to the image's grid by a scale factor with an offset. Both exporters freeze it."""

    def __init__(self, antialias: bool = False) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 6, 5, 5))
        self.antialias = antialias

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[2] // 4, image.shape[3] // 4
        factor = ((height + 0.1) / 5, (width + 0.1) / 5)
        table = torch.nn.functional.interpolate(
            self.table, scale_factor=factor, mode="bicubic", antialias=self.antialias
        )
        return torch.nn.functional.avg_pool2d(image, 4).mean(1, keepdim=True) + table


def _images() -> list[tuple[Tensor]]:
    # 20 by 20 is the table's own size, where the offset moves the samples all the same.
    return [(torch.randn(b, 3, *size),) for b, *size in ((2, 28, 36), (1, 20, 20), (3, 16, 44), (2, 8, 12))]


@patch(
    "torch.nn.functional.interpolate",
    name="interpolate",
    why="F.interpolate: output size frozen by a scale_factor from shapes, Unsupported: ONNX export of operator "
    "aten::_upsample_bicubic2d_aa, slow or missing cubic Resize",
    link="https://github.com/facebookresearch/dinov2/issues/19",
    when=When(exporters=("dynamo", "trace")),
    options=("form",),
    proof=Proof(
        build=lambda: _Table(antialias=True),
        inputs=_images,
        fails=("dynamo", "trace"),
        reason="relative error|_upsample_bicubic2d_aa",
    ),
)
def interpolate(
    original: Callable[..., Tensor],
    input: Tensor,
    size: object = None,
    scale_factor: object = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes position tables, antialiased images, and by scales computed from sizes, with `formulas.resize`."""
    given = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    spatial = input.dim() - 2
    if not input.is_floating_point() or spatial < 1:
        return NotImplemented
    # First: a table for one image size is a constant, and all that follows would add nodes.
    stored = _stored(original, input, given)
    if stored is not None:
        return stored
    sizes = None if size is None else _each(size, spatial)
    scales = None if scale_factor is None else _each(scale_factor, spatial)
    made = _averaged(input, sizes, scales, mode)
    made = _sampled(input, sizes, scales, mode, recompute_scale_factor) if made is None else made
    if made is not None:
        return made
    if antialias and not align_corners and (scales is None or recompute_scale_factor):
        wanted = _outputs(input, sizes, scales)
        if _fits_resize(input, wanted, mode):
            return interpolation.resized(input, wanted, mode)
    if not _ours(input, sizes, scales, mode, antialias):
        return NotImplemented
    axes = _axes(input, sizes, scales, bool(recompute_scale_factor))
    return resize(input, axes, mode, align_corners=align_corners, antialias=antialias, channels_last=_is_table(input))


def _sampled(input: Tensor, sizes: Any, scales: Any, mode: str, recompute: bool | None) -> Tensor | None:
    """The nearest neighbours as PyTorch picks them, where ONNX picks others; else None."""
    if scales is not None and not any(map(_computed, scales)) and _misplaced_by(scales, mode, recompute):
        return interpolation.sampled(input, _outputs(input, None, scales), mode, None if recompute else scales)
    return interpolation.sampled(input, sizes, mode) if sizes is not None and _misplaced(input, sizes, mode) else None


def _averaged(input: Tensor, sizes: list[object] | None, scales: list[object] | None, mode: str) -> Tensor | None:
    """adaptive_avg_pool under another name; None where it has a form under dynamo, since its sizes are static."""
    if mode != "area" or not (exporting() == "trace" or any(map(symbolic, (*input.shape[2:], *(sizes or ()))))):
        return None
    return resize(input, [Axis(size) for size in _outputs(input, sizes, scales)], "area")


def _stored(original: Callable[..., Tensor], input: Tensor, given: tuple[object, ...]) -> Tensor | None:
    """The interpolated table as a constant, if the image's size is static or the user gave `image_size`."""
    running = running_model()
    if running is None or running.model is None or not _is_constant_size(running.settings, given[:2]):
        return None
    if not _is_table(input):
        return None
    table = constant(input, running.model, running.tensors)
    if table is None:
        return None
    size, factor = (_numbers(value) for value in given[:2])
    stored: Tensor = unrecorded(lambda: original(table, size, factor, *given[2:]))
    return stored


def _is_constant_size(settings: Settings, asked: tuple[object, ...]) -> bool:
    form = form_of(settings, "interpolate")
    if form is not None:
        return form == "static"
    # Under trace every size is a tensor, also a static one.
    leaves = [number for value in asked if value is not None for number in _each(value, 1)]
    return exporting() == "dynamo" and not any(symbolic(number) for number in leaves)


def _numbers(value: Any) -> object:
    """A size or scale as Python numbers, those of the example: the table is stored for them."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return (int if isinstance(value, torch.SymInt) else float)(value)
    if isinstance(value, Tensor):
        with tracing_paused():
            return value.tolist()
    return tuple(_numbers(number) for number in value)


def _each(value: object, spatial: int) -> list[Any]:
    if isinstance(value, Tensor) and value.dim() == 1:
        return list(value.unbind())
    return list(value) if isinstance(value, Sequence) else [value] * spatial


def _fits_resize(image: Tensor, wanted: Sequence[object], mode: str) -> bool:
    """Whether an antialiased image, by sizes, is ONNX's Resize: a third of the time of two products."""
    if mode not in ("bilinear", "bicubic") or image.dim() != 4 or image.dtype != torch.float32 or target_opset() < 18:
        return False
    # Under dynamo an image of a static size looks like a table; a table at a static size is stored before this.
    return not _is_table(image) or (exporting() == "dynamo" and not any(map(symbolic, wanted)))


def _ours(input: Tensor, sizes: list[object] | None, scales: list[object] | None, mode: str, antialias: bool) -> bool:
    """Whether two matrix products are better than the exporter's Resize."""
    asked = [*(sizes or ()), *(scales or ())]
    # The TorchScript exporter has no operator for it, and torchlib's form passes over the scale factors.
    if antialias:
        return True
    # The exporters make a constant of a scale that is computed from sizes.
    if any(map(_computed, scales or ())):
        return True
    dynamic = any(symbolic(number) for number in asked) or _asked_to_compute()
    return dynamic and mode in SMOOTH and _is_table(input)


def _computed(scale: object) -> bool:
    return isinstance(scale, torch.SymFloat | Tensor)


def _misplaced(input: Tensor, sizes: list[object], mode: str) -> bool:
    """Whether onnxruntime's Resize picks other neighbours than torch, here or possibly at other sizes."""
    if mode == "nearest-exact":
        return exporting() == "trace"  # no operator for it under trace; dynamo writes Gathers already
    if mode != "nearest":
        return False
    pairs = list(zip(input.shape[2:], sizes, strict=True))
    return not all(interpolation.resizes_alike(extent, size) for extent, size in pairs)


def _misplaced_by(scales: list[float], mode: str, recompute: bool | None) -> bool:
    """The same for scale factors. Neither exporter has `nearest-exact` right, nor a factor computed from the sizes."""
    if mode == "nearest":
        return bool(recompute) or not all(map(interpolation.scales_alike, scales))
    return mode == "nearest-exact"


def _outputs(input: Tensor, sizes: list[object] | None, scales: list[object] | None) -> list[Any]:
    return sizes or [scaled(extent, scale) for extent, scale in zip(input.shape[2:], scales or (), strict=True)]


def _asked_to_compute() -> bool:
    running = running_model()
    return running is not None and form_of(running.settings, "interpolate") == "dynamic"


def _is_table(input: Tensor) -> bool:
    """Whether `input` is a position table: its spatial sizes are those of a parameter, not of an image."""
    if exporting() == "trace":
        running = running_model()
        return running is not None and traced_from(input, running.tensors.values())
    return all(isinstance(size, int) for size in input.shape)


def _axes(input: Tensor, sizes: list[object] | None, scales: list[object] | None, recompute: bool) -> list[Axis]:
    outputs = _outputs(input, sizes, scales)
    if sizes is not None or scales is None or recompute:
        return [Axis(size) for size in outputs]
    # For scales only: with an offset the resize at the trained size is not the identity, which the model skips there.
    native = skipped_here()
    return [
        Axis(size, _precise(extent, size, scale), native)
        for extent, size, scale in zip(input.shape[2:], outputs, scales, strict=True)
    ]


def _precise(extent: Any, size: object, scale: Any) -> object:
    """The scale in float64, if it is (a whole number of elements + an offset) / the table's size."""
    if not isinstance(scale, torch.SymFloat):
        return scale
    split = split_fraction(scale * extent)
    if split is None:
        return scale
    return (as_tensor(split[0], torch.float64) + split[1]) / extent


op(
    "ops.aten._upsample_bilinear2d_aa",
    "ops.aten._upsample_bilinear2d_aa.default",
    name="bilinear-antialiased",
    why=untraced("aten::_upsample_bilinear2d_aa"),
    beside=("interpolate",),
    tries=lambda b, h, w: torch.randn(b, 2, h + 4, w + 4),
    case=lambda x: (
        _ATEN._upsample_bilinear2d_aa(x, (3, 4), False),
        _ATEN._upsample_bilinear2d_aa(x, (3, 4), align_corners=False, scale_factors=None),
    ),
    to=lambda input, output_size, align_corners, *scales, **named: functional.interpolate(
        input, output_size, mode="bilinear", align_corners=align_corners, antialias=True
    ),
)
