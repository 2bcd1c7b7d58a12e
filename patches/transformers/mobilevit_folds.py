"""`F.unfold` and `F.fold` into patches that do not overlap, as MobileViT V2 does: reshapes at any size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch

WRITTEN_FOR = "transformers 5.23.0"

LINK = "https://github.com/pytorch/pytorch/issues/147496"
_LAYER = "transformers.models.mobilevitv2.modeling_mobilevitv2.MobileViTV2Layer"


class _ThereAndBack(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer: Any = layer

    def forward(self, x: Tensor) -> Tensor:
        patches, size = self.layer.unfolding(x)
        return self.layer.folding(patches - patches.mean(-1, keepdim=True), size)


def _layer() -> nn.Module:
    from transformers import MobileViTV2Config
    from transformers.models.mobilevitv2.modeling_mobilevitv2 import MobileViTV2Layer

    config = MobileViTV2Config(image_size=64, width_multiplier=0.25)
    return _ThereAndBack(MobileViTV2Layer(config, in_channels=4, out_channels=4, attn_unit_dim=8, n_attn_blocks=1))


@patch(
    _LAYER,
    name="mobilevitv2-folds",
    why="F.fold to a dynamic output size: col2im fails in the TorchScript exporter, F.unfold pins the size",
    link=LINK,
    when=When(
        bodies={
            "unfolding": {KnownBody("c7fc503966b3", WRITTEN_FOR)},
            "folding": {KnownBody("643f84de582a", WRITTEN_FOR)},
        }
    ),
    proof=Proof(
        _layer,
        # (7, 9): the last row and column are in no patch.
        lambda: [(torch.randn(b, 4, h, w),) for b, h, w in ((2, 8, 6), (1, 4, 10), (3, 7, 9), (2, 2, 2))],
        fails=("trace",),
        reason="col2im",
    ),
)
class MobileViTV2Layer:
    """The layer that attends among the same positions of all patches."""

    patch_height: int
    patch_width: int

    def unfolding(self, feature_map: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, C, H, W) to (B, C, cells of a patch, patches), cells beyond the last whole patch left out; (H, W)."""
        batch, channels, height, width = feature_map.shape
        high, wide = self.patch_height, self.patch_width
        rows, columns = height // high, width // wide
        x = feature_map[:, :, : rows * high, : columns * wide]
        # As in formulas.windows: the transpose copies rows of a patch, and the reshapes split and merge neighbours
        # only.
        x = x.reshape(batch * channels * rows, high, columns, wide).transpose(1, 2)
        x = x.reshape(batch, channels, rows * columns, high * wide).transpose(2, 3)
        return x, (height, width)

    def folding(self, patches: Tensor, output_size: tuple[int, int]) -> Tensor:
        """(B, C, cells of a patch, patches) back to (B, C, H, W), zeros where no patch was."""
        batch, channels = patches.shape[:2]
        (height, width), (high, wide) = output_size, (self.patch_height, self.patch_width)
        rows, columns = height // high, width // wide
        x = patches.transpose(2, 3).reshape(batch * channels * rows, columns, high, wide).transpose(1, 2)
        x = x.reshape(batch, channels, rows * high, columns * wide)
        # fold leaves zeros where no patch was.
        return functional.pad(x, (0, width - columns * wide, 0, height - rows * high))
