"""DepthPro: overlapping patches of a scaled image, and their features as one map, at counts known at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import as_tensor, symbolic, truncated

LINK = "https://github.com/huggingface/transformers/issues/26790"
WHY = "DepthPro: the loop over patches and `if n_patches == batch_size` keep the number of patches of the example"
_MODULE = "transformers.models.depth_pro.modeling_depth_pro"


class _ScaledAndBack(nn.Module):
    """Patches of 4 by 4, each two cells from the last, centred, and one map again without what overlaps."""

    def forward(self, x: Tensor) -> Tensor:
        from transformers.models.depth_pro import modeling_depth_pro as home

        patches = home.split_to_patches(x, 4, 0.5)
        return home.merge_patches(patches - patches.mean((2, 3), keepdim=True), x.shape[0], 3)


class _Split(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        from transformers.models.depth_pro import modeling_depth_pro as home

        return home.split_to_patches(x, 4, 0.5)


def _images(*sizes: tuple[int, int, int]) -> list[tuple[Tensor]]:
    return [(torch.randn(b, 3, *size),) for b, *size in sizes]


def _proof(build: Any, *sizes: tuple[int, int, int], beside: tuple[str, ...] = ()) -> Proof:
    return Proof(build, lambda: _images(*sizes), fails=("dynamo", "trace"), reason="static shape|shape", beside=beside)


_WHOLE = _proof(_ScaledAndBack, (2, 8, 8), (1, 4, 4), (3, 6, 6), (2, 12, 8), (2, 16, 16), beside=("depth-pro-split",))


@patch(
    f"{_MODULE}.split_to_patches",
    name="depth-pro-split",
    why=WHY,
    link=LINK,
    proof=_proof(_Split, (2, 4, 4), (1, 8, 6)),
)
def split_to_patches(
    original: Callable[..., Tensor], pixel_values: Tensor, patch_size: int, overlap_ratio: float
) -> Tensor:
    """(B, C, H, W) to (rows * columns * B, C, patch_size, patch_size); an image of one patch is that patch."""
    stride = int(patch_size * (1 - overlap_ratio))
    batch, channels, height, width = pixel_values.shape
    rows, columns = ((length - patch_size) // stride + 1 for length in (height, width))
    cells = torch.arange(patch_size, device=pixel_values.device)
    for dim, count in ((2, rows), (3, columns)):
        # One Gather for each axis, in place of a slice for each patch.
        starts = torch.arange(count, device=pixel_values.device) * stride
        pixel_values = pixel_values.index_select(dim, (starts[:, None] + cells).reshape(-1))
    x = pixel_values.reshape(batch, channels, rows, patch_size, columns, patch_size)
    return x.permute(2, 4, 0, 1, 3, 5).reshape(-1, channels, patch_size, patch_size)


@patch(f"{_MODULE}.merge_patches", name="depth-pro-merge", why=WHY, link=LINK, proof=_WHOLE)
def merge_patches(original: Callable[..., Tensor], patches: Tensor, batch_size: int, padding: int) -> Tensor:
    """(patches * B, C, S, S) to one square map (B, C, side, side); `padding` cells are cut off where patches meet."""
    _, channels, size, _ = patches.shape
    x = patches.reshape(-1, batch_size, channels, size, size)
    count = x.shape[0]
    side = truncated(count**0.5) if symbolic(count) else int(count**0.5)
    cut = min(size // 4, padding) * _at_most(count // 4, 1)  # fewer than four patches are not cut
    cells = _kept(side, size, cut, x.device)
    patch_of, cell_of = torch.div(cells, size, rounding_mode="floor"), torch.remainder(cells, size)
    index = patch_of[:, None] * side + patch_of[None, :]
    # [row, column] of the map: which patch, and which of its cells.
    flat = x.permute(1, 2, 0, 3, 4).reshape(batch_size, channels, -1)
    places = index * (size * size) + cell_of[:, None] * size + cell_of[None, :]
    length = cells.shape[0]
    return flat.index_select(2, places.reshape(-1)).reshape(batch_size, channels, length, length)


def _kept(side: Any, size: int, cut: Any, device: torch.device) -> Tensor:
    """Which of the side * size cells along one axis are left: all but `cut` on either side of where patches meet."""
    cells = torch.arange(side * size - 2 * cut * (side - 1), device=device)
    # A patch gives size - 2 cut cells; the first and the last keep theirs at the edge as well.
    block = torch.div(cells - cut, size - 2 * cut, rounding_mode="floor").clamp(min=0)
    last = as_tensor(side - 1, torch.int64, device)
    return cells + 2 * cut * torch.minimum(block, last)


def _at_most(value: object, bound: int) -> Any:
    if isinstance(value, Tensor):
        return value.clamp(max=bound)
    return torch.sym_min(value, bound)
