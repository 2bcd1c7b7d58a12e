"""Position tables of DINOv2 and Depth-Anything-V2, in their repositories' code and copies of it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, RefusedError, Settings, When, patch
from onnxpatch.formulas.resize import Axis, form_of, resize
from onnxpatch.formulas.symbolic import as_tensor, symbolic

LINK = "https://github.com/facebookresearch/dinov2/issues/288"


class DinoVisionTransformer(torch.nn.Module):
    """The model of the proof: a class token and a square table, interpolated to the image's grid with DINO's offset."""

    def __init__(self, side: int = 5, patch_size: int = 4, dim: int = 6, offset: float = 0.1) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.interpolate_offset = offset
        self.interpolate_antialias = True
        self.pos_embed = torch.nn.Parameter(torch.randn(1, side * side + 1, dim))
        self.embed = torch.nn.Conv2d(3, dim, patch_size, patch_size)

    def interpolate_pos_encoding(self, x: Tensor, w: Any, h: Any) -> Tensor:
        count = self.pos_embed.shape[1] - 1
        if x.shape[1] - 1 == count and w == h:
            return self.pos_embed
        side = math.isqrt(count)
        grid = (w // self.patch_size, h // self.patch_size)
        table = self.pos_embed[:, 1:].float().reshape(1, side, side, -1).permute(0, 3, 1, 2)
        table = torch.nn.functional.interpolate(
            table,
            scale_factor=tuple((length + self.interpolate_offset) / side for length in grid),
            mode="bicubic",
            antialias=self.interpolate_antialias,
        )
        table = table.flatten(2).transpose(1, 2)
        return torch.cat((self.pos_embed[:, :1].float(), table), dim=1).to(x.dtype)

    def forward(self, image: Tensor) -> Tensor:
        tokens = self.embed(image).flatten(2).transpose(1, 2)
        tokens = torch.cat((tokens.mean(1, keepdim=True), tokens), dim=1)
        return tokens + self.interpolate_pos_encoding(tokens, image.shape[2], image.shape[3])


KNOWN = (
    KnownBody(
        "0a6332d22c86",
        "facebookresearch/dinov2 (2025, b8931f7)",
        "934fa3b6021c64352281d6d605e001da17900c553c394ed0a7c3188c5988e67cb7431a11d4ededbb2a53745ca4c683c7450f",
    ),
    KnownBody(
        "a8afa8082ac5",
        "DepthAnything/Depth-Anything-V2 (2026, a561b84)",
        "934fa3b6021c64352281d6d605e001da17900c553c394ed0d41e16c56d892368ee299ce683c7450f",
    ),
    KnownBody.of(DinoVisionTransformer.interpolate_pos_encoding, "the model of this patch's proof"),
)


def _images() -> list[tuple[Tensor]]:
    # The example has the trained size, 5 cells of 4 pixels: exported there, the shortcut hides the resize.
    sizes = ((20, 20), (28, 36), (8, 32), (52, 20), (20, 44))
    return [(torch.randn(batch, 3, *size),) for size in sizes for batch in (2, 3)]


@patch(
    "*.DinoVisionTransformer",
    name="dinov2-positions",
    why="DINOv2, Depth-Anything-V2: exported with dynamic height and width, interpolate_pos_encoding keeps the traced "
    "size, or the trained one",
    link=LINK,
    when=When(exporters=("dynamo", "trace"), bodies={"interpolate_pos_encoding": KNOWN}),
    options=("form",),
    proof=Proof(
        DinoVisionTransformer,
        _images,
        fails=("dynamo", "trace"),
        reason="cannot be reshaped|broadcast an axis",
        unchanged="fixed sizes",
    ),
)
class _DinoPositions:
    """Resizes the table to any grid, with the model's offset and antialias. At its own square size it is unchanged."""

    pos_embed: Tensor
    patch_size: int
    interpolate_offset: float
    interpolate_antialias: bool
    onnxpatch_side: int

    @staticmethod
    def onnxpatch_prepare(module: Any, settings: Settings) -> dict[str, object]:
        count = int(module.pos_embed.shape[1]) - 1
        side = math.isqrt(count)
        if side * side != count:
            raise RefusedError(f"its table has {count} positions, which make no square: eager refuses other sizes too")
        if "static" in (form_of(settings, "dinov2-positions"), form_of(settings, "interpolate")):
            raise RefusedError("the table becomes a constant for one image size, by the patch `interpolate`")
        return {"onnxpatch_side": side}

    def interpolate_pos_encoding(self, x: Tensor, w: Any, h: Any) -> Tensor:
        # Of a static image the model's own code makes a constant, and its shortcut is right.
        if not (symbolic(w) or symbolic(h)):
            return NotImplemented
        side = self.onnxpatch_side
        table = self.pos_embed[:, 1:].reshape(1, side, side, self.pos_embed.shape[2]).permute(0, 3, 1, 2).float()
        axes = self._axes((w // self.patch_size, h // self.patch_size))
        table = resize(table, axes, "bicubic", antialias=self.interpolate_antialias, channels_last=True)
        table = table.permute(0, 2, 3, 1).flatten(1, 2)
        return torch.cat((self.pos_embed[:, :1].float(), table), dim=1).to(x.dtype)

    def _axes(self, grid: tuple[object, object]) -> list[Axis]:
        if not self.interpolate_offset:
            return [Axis(size) for size in grid]  # a resize to the same size changes nothing
        # float64, as the Python floats of eager: in float32 (h + 0.1) / side places the samples a little off.
        side, lengths = self.onnxpatch_side, [as_tensor(size, torch.float64) for size in grid]
        # With antialias, torch copies an axis of unchanged size whatever the offset.
        native = None if self.interpolate_antialias else (lengths[0] == side) & (lengths[1] == side)
        return [
            Axis(size, (length + self.interpolate_offset) / side, native)
            for size, length in zip(grid, lengths, strict=True)
        ]
