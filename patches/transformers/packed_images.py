"""Images of any size in one call.

Qwen2-VL's vision tower and some thirty others have them in one row of patches, SigLIP 2 in a batch with one position
table, which is resized for each image (`spatial_shapes`).

    grid_thw = [[1, 4, 6], [2, 8, 4]]        frames, height and width of each image, in patches
    for t, h, w in grid_thw.tolist(): ...    positions and windows of each, in Python: those of the example

A place in its image is arithmetic on the number of the patch. `packed-attention` attends within frames and windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch

WHY = "grid_thw.tolist(): positions, windows and attention within images are those of the example's images"
LINK = "https://github.com/huggingface/transformers/issues/32493"
REQUIRES = ("transformers>=5.10",)
REASON = "broadcast|out of data bounds|'split'|data-dependent|static shape|relative error"


class _Tower(torch.nn.Module):
    """Attention within windows, with the angles of each patch's row and column."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
        from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLVisionAttention

        config = Qwen2_5_VLVisionConfig(hidden_size=8, num_heads=2)
        config._attn_implementation = "sdpa"
        self.attention = Qwen2_5_VLVisionAttention(config)

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        from transformers import vision_utils

        places = vision_utils.get_vision_position_ids(grid, 2)
        order, bounds = vision_utils.get_vision_window_index(grid, 2, 8, 2)
        x = x.unflatten(0, (-1, 4))[order].flatten(0, 1)
        angles = places.flatten(1).to(x.dtype).repeat(1, 2)
        return self.attention(x, bounds, position_embeddings=(angles.cos(), angles.sin()))


def _images() -> list[tuple[Tensor, Tensor]]:
    # Images whose sides are whole windows of 4 patches, and others; frames and images of any number.
    given = (((1, 4, 6), (1, 8, 10)), ((2, 6, 4), (1, 2, 2), (1, 10, 2)), ((3, 8, 4),))
    return [(torch.randn(sum(t * h * w for t, h, w in grid), 8), torch.tensor(grid)) for grid in given]


_NAMES = ("packed-positions", "packed-windows")
_OTHERS = ("packed-attention", "transformers-attention", "attention", "repeat-by-counts", "stable-sort", "composites")


def _row(path: str, name: str) -> Callable[[Any], Any]:
    return op(
        path, name=name, why=WHY, reason=REASON, link=LINK, requires=REQUIRES, tries=_images, case=_Tower,
        beside=(*(one for one in _NAMES if one != name), *_OTHERS),
    )  # fmt: skip


def _raster(grid: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each patch of all images its frame's number, its row, its column, and the number of its image.

    grid: (images, 3), frames, heights and widths.
    """
    counts = grid.prod(1)
    image = torch.repeat_interleave(torch.arange(grid.shape[0], device=grid.device), counts)
    heights, widths = grid[:, 1][image], grid[:, 2][image]
    within = torch.arange(image.shape[0], device=grid.device) - (counts.cumsum(0) - counts)[image]
    row = torch.div(within, widths, rounding_mode="floor")
    frame = torch.div(row, heights, rounding_mode="floor")
    return frame, row - frame * heights, within - row * widths, image


@_row("transformers.vision_utils.get_vision_position_ids", name="packed-positions")
def packed_positions(
    original: Callable[..., Tensor],
    grid_thw: Tensor,
    spatial_merge_size: Any,
    include_temporal: bool = False,
    kwargs: dict[str, Any] | None = None,
) -> Tensor:
    """(patches, 2) rows and columns, or (patches, 3) with the frames before them, in the order of blocks to merge."""
    if (kwargs and kwargs.get("position_ids") is not None) or not isinstance(spatial_merge_size, int):
        return NotImplemented
    m = spatial_merge_size
    # Blocks lie as the pixels of an image m times smaller, and the patches in a block in a row.
    frame, row, column, _ = _raster(
        torch.cat([grid_thw[:, :1], torch.div(grid_thw[:, 1:], m, rounding_mode="floor")], 1)
    )
    inner = torch.arange(m, device=grid_thw.device)
    rows = (row[:, None, None] * m + inner[:, None]).expand(-1, m, m).flatten()
    columns = (column[:, None, None] * m + inner).expand(-1, m, m).flatten()
    frames = [frame.repeat_interleave(m * m)] if include_temporal else []
    return torch.stack([*frames, rows, columns], -1)


@_row("transformers.vision_utils.get_vision_window_index", name="packed-windows")
def packed_windows(
    original: Callable[..., tuple[Tensor, Tensor]],
    grid_thw: Tensor,
    spatial_merge_size: int,
    window_size: int,
    patch_size: int,
    kwargs: dict[str, Any] | None = None,
) -> tuple[Tensor, Tensor]:
    """The order of merged patches by windows, and where in it each window begins and the last one ends, in patches."""
    if kwargs:
        return NotImplemented
    m, side = spatial_merge_size, window_size // spatial_merge_size // patch_size
    merged = torch.cat([grid_thw[:, :1], torch.div(grid_thw[:, 1:], m, rounding_mode="floor")], 1)
    frame, row, column, image = _raster(merged)
    # Windows in a frame have numbers below the largest of all images.
    across = torch.div(merged.amax(0) + side, side, rounding_mode="floor")
    window = torch.div(row, side, rounding_mode="floor") * across[2] + torch.div(column, side, rounding_mode="floor")
    window = window + (image * merged[:, 0].amax(0) + frame) * across[1] * across[2]
    ordered, order = window.sort(stable=True)
    ends = torch.nonzero(functional.pad(ordered[1:] != ordered[:-1], (0, 1), value=True))[:, 0] + 1
    return order, (functional.pad(ends, (1, 0)) * m**2).to(torch.int32)


WRITTEN_FOR = "transformers 5.23.0"

_EMBEDDINGS = "transformers.models.siglip2.modeling_siglip2.Siglip2VisionEmbeddings"


class _Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import Siglip2VisionConfig
        from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

        config = Siglip2VisionConfig(hidden_size=6, num_attention_heads=1, patch_size=2, num_patches=25)
        self.embeddings = Siglip2VisionEmbeddings(config)
        nn.init.normal_(self.embeddings.position_embedding.weight)

    def forward(self, patches: Tensor, shapes: Tensor) -> Tensor:
        return self.embeddings(patches, shapes)


def _batch(length: int, *shapes: tuple[int, int]) -> tuple[Tensor, Tensor]:
    return torch.randn(len(shapes), length, 12), torch.tensor(shapes)


@patch(
    _EMBEDDINGS,
    name="siglip2-positions",
    why="Siglip2: resize_positional_embeddings loops over spatial_shapes.tolist(), and keeps the sizes of the example",
    link="https://github.com/huggingface/transformers/issues/26790",
    when=When(
        exporters=("dynamo", "trace"), bodies={"resize_positional_embeddings": {KnownBody("a7fdf31b9ce3", WRITTEN_FOR)}}
    ),
    proof=Proof(
        _Embedded,
        lambda: [
            _batch(24, (4, 5), (3, 7)),
            _batch(30, (5, 5), (2, 15), (6, 4)),
            # One place less than there is room for: the last one is padding.
            _batch(8, (1, 7)),
            _batch(49, (7, 7), (5, 9)),
        ],
        fails=("dynamo", "trace"),
        reason="static shape|aten::_upsample_bilinear2d_aa",
    ),
)
class _Siglip2Positions:
    """Computes the table at every place of every image, by a small set of weights for each of its two axes."""

    @staticmethod
    def resize_positional_embeddings(positional_embeddings: Tensor, spatial_shapes: Tensor, max_length: int) -> Tensor:
        """(H, W, C), (B, 2) heights and widths, L, to (B, L, C); padding gets an image's first position."""
        table = positional_embeddings.float()
        place = torch.arange(max_length, device=table.device)[None, :]
        heights, widths = spatial_shapes[:, :1], spatial_shapes[:, 1:]
        place = torch.where(place < heights * widths, place, 0)
        row = torch.div(place, widths, rounding_mode="floor")
        tall = _weights(row, heights, table.shape[0], table)
        wide = _weights(place - row * widths, widths, table.shape[1], table)
        both = (tall[..., :, None] * wide[..., None, :]).flatten(2)
        return torch.matmul(both, table.flatten(0, 1)).to(positional_embeddings.dtype)


def _weights(places: Tensor, lengths: Tensor, size: int, like: Tensor) -> Tensor:
    """Antialiased linear weights (B, L, size) of `size` cells, at `places` (B, L) out of `lengths` (B, 1)."""
    # F.interpolate's antialiased linear weights, for a length that differs from image to image.
    step = size / lengths.to(like.dtype)
    centres = (places.to(like.dtype) + 0.5) * step
    cells = torch.arange(size, device=like.device).to(like.dtype) + 0.5
    # Antialiasing widens the weights where cells become fewer, and never narrows them.
    distance = (cells - centres[..., None]).abs() / step.clamp(min=1)[..., None]
    weights = torch.relu(1 - distance)
    return weights / weights.sum(-1, keepdim=True)


class _Vilt(nn.Module):
    """What no order of the patches changes: they are drawn in a random one."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ViltConfig
        from transformers.models.vilt.modeling_vilt import ViltEmbeddings

        self.embeddings = ViltEmbeddings(ViltConfig(hidden_size=6, vocab_size=9, image_size=8, patch_size=2))
        nn.init.normal_(self.embeddings.position_embeddings)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        x, kept, (places, _) = self.embeddings.visual_embed(image, mask, -1)
        moved = (kept[:, 1:, None] * places).flatten(1).sum(1)
        return (x * kept[..., None]).sum(1), kept.sum(1), torch.ones_like(kept).sum(1), moved


def _masked(size: tuple[int, int], *kept: tuple[int, int]) -> tuple[Tensor, Tensor]:
    masks = [functional.pad(torch.ones(h, w), (0, size[1] - w, 0, size[0] - h)).long() for h, w in kept]
    return torch.randn(len(kept), 3, *size), torch.stack(masks)


@patch(
    "transformers.models.vilt.modeling_vilt.ViltEmbeddings",
    name="vilt-patches",
    why="Vilt: visual_embed loops over the images of the batch, `for h, w in zip(x_h, x_w)`, and draws patches of each",
    link="https://github.com/huggingface/transformers/issues/18261",
    when=When(exporters=("dynamo", "trace"), bodies={"visual_embed": {KnownBody("d000bbd8a687", WRITTEN_FOR)}}),
    proof=Proof(
        _Vilt,
        lambda: [
            _masked((12, 8), (12, 8), (6, 4)),
            _masked((8, 14), (4, 14), (8, 10), (2, 2)),
            _masked((8, 8), (8, 8)),
        ],
        fails=("dynamo", "trace"),
        reason="data-dependent|num_samples|split|specialized|static shape",
        beside=("interpolate",),
    ),
)
class _ViltPatches:
    """Resizes the positions by small weights for each axis, and draws for all images at once, as often as eager."""

    def visual_embed(self: Any, pixel_values: Tensor, pixel_mask: Tensor, max_image_length: Any = 200) -> Any:
        x = self.patch_embeddings(pixel_values)
        height, width = x.shape[2:]
        mask = functional.interpolate(pixel_mask[:, None].float(), size=(height, width)).long()
        tall, wide = mask[:, 0].sum(1)[:, 0], mask[:, 0].sum(2)[:, 0]
        table = self.position_embeddings[0, 1:]
        side = self.config.image_size // self.config.patch_size
        rows = torch.matmul(_between(tall, height, side, table), table.reshape(side, -1)).unflatten(2, (side, -1))
        table = torch.matmul(_between(wide, width, side, table)[:, None], rows).flatten(1, 2)

        x, mask = x.flatten(2).transpose(1, 2), mask.flatten(1)
        most: Any = (tall * wide).max()
        if isinstance(max_image_length, int) and max_image_length >= 0:
            most = most.clamp(max=max_image_length)
        chosen = _chosen(mask, torch.arange(most, device=x.device))
        row = torch.div(chosen, width, rounding_mode="floor")
        embedded = (x + table).gather(1, chosen[..., None].expand(-1, -1, x.shape[2]))
        first = (self.cls_token + self.position_embeddings[:, :1]).expand(x.shape[0], -1, -1)
        mask = functional.pad(mask.gather(1, chosen), (1, 0), value=1)
        embedded = self.dropout(torch.cat([first, embedded], 1))
        return embedded, mask, (torch.stack([row, chosen - row * width], -1), (height, width))


def _between(lengths: Tensor, size: Any, cells: int, like: Tensor) -> Tensor:
    """F.interpolate's linear weights (B, size, cells), from corner to corner of `lengths` (B,), 0 behind them."""
    places = torch.arange(size, device=like.device)
    centres = places * (cells - 1) / (lengths - 1).clamp(min=1).to(like.dtype)[:, None]
    weights = torch.relu(1 - (torch.arange(cells, device=like.device) - centres[..., None]).abs())
    return weights * (places < lengths[:, None])[..., None]


def _chosen(mask: Tensor, slots: Tensor) -> Tensor:
    """The patches of each image (B, slots): those in the mask, then others drawn; more than there are slots: any."""
    inside, outside, last = mask != 0, mask != 1, mask.shape[1] - 1
    places = torch.arange(mask.shape[1], device=mask.device)
    kept, others = (torch.where(side, places, places + last + 1).argsort(1) for side in (inside, outside))
    count, slots = inside.sum(1, keepdim=True), slots.expand(mask.shape[0], -1)
    drawn = (torch.rand_like(slots.float()) * outside.sum(1, keepdim=True)).long()
    filled = torch.where(slots < count, kept.gather(1, slots.clamp(max=last)), others.gather(1, drawn.clamp(max=last)))
    mixed = torch.where(inside, torch.rand_like(mask.float()), 2.0).argsort(1).gather(1, slots.clamp(max=last))
    return torch.where(count < slots.shape[1], filled, mixed)
