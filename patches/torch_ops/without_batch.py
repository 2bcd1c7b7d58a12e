"""Images and sequences without a batch axis, which ONNX's pools and layouts do not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.tracing import function_name


class _Alone(nn.Module):
    """One image [4, h, w], and its first channel as sequences [h, w]."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = nn.ModuleList([nn.MaxPool2d(3, 2), nn.AvgPool2d(2), nn.LPPool2d(2, 3), nn.PixelShuffle(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        pooled = [pool(x).mean() for pool in self.pools]
        rows = functional.max_pool1d(x[0], 2), functional.avg_pool1d(x[0], 3), functional.adaptive_avg_pool1d(x[0], 1)
        return (*pooled, *rows, functional.pad(x[0], (1, 1), mode="circular"), functional.unfold(x, 2))


_AXES = {
    "max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3, "avg_pool1d": 1, "avg_pool2d": 2, "avg_pool3d": 3,
    "lp_pool1d": 1, "lp_pool2d": 2, "adaptive_avg_pool1d": 1, "adaptive_avg_pool2d": 2, "adaptive_avg_pool3d": 3,
    "max_pool1d_with_indices": 1, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
    "pixel_shuffle": 2, "pixel_unshuffle": 2, "unfold": 2, "fold": 1,
}  # fmt: skip


@patch(
    *(f"torch.nn.functional.{name}" for name in (*_AXES, "pad")),
    "torch.max_pool1d",
    "torch.max_pool2d",
    "torch.max_pool3d",
    "torch.pixel_shuffle",
    "torch.pixel_unshuffle",
    name="without-batch",
    why="Input tensor must have at least 3 dimensions: a pool of a sequence without a batch axis",
    link="https://github.com/pytorch/pytorch/issues/60585",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Alone,
        lambda: [(torch.randn(4, height, width),) for height, width in ((8, 9), (11, 6), (5, 14))],
        ({1: "height", 2: "width"},),
        fails=("dynamo", "trace"),
        reason="only support 4d|incorrect number of values",
        beside=("adaptive-average-pooling", "max-pooling-of-sequences"),
        unchanged=lambda: Computes(lambda x: functional.max_pool2d(x[None], 2)),
    ),
)
def without_batch(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of a batch of one."""
    name = function_name(original)
    if name == "pad":
        given = {**dict(zip(("pad", "mode"), args, strict=False)), **kwargs}
        axes = len(given["pad"]) // 2 if given.get("mode") == "circular" else None
    else:
        axes = _AXES[name] if exporting() == "trace" or name == "unfold" else None
    if axes is None or input.dim() != axes + 1:
        return NotImplemented
    # By its public name, so that other patches act on it.
    found = getattr(functional if hasattr(functional, name) else torch, name)(input[None], *args, **kwargs)
    return tuple(one[0] for one in found) if isinstance(found, tuple) else found[0]
