"""Images cut into windows or patches and put back, at counts known at run time.

SAM, SAM 2, SAM 3, VitDet and their copies partition with padding, and crop. DepthPro's patches of a scaled image
overlap, and their features come back as one map. MobileViT V2 takes `F.unfold` and `F.fold` for patches that do not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_cases import computing
from onnxpatch.formulas.symbolic import as_tensor, symbolic, truncated
from onnxpatch.formulas.windows import merge, pad_to, partition, windows_over

WRITTEN_FOR = "transformers 5.23.0"

LINK = "https://github.com/huggingface/transformers/issues/33929"
WHY = "(window_size - height % window_size) % window_size keeps torch.export busy for minutes, or the graph is wrong"
_MODELS = "transformers.models"
_row = functools.partial(patch, why=WHY, link=LINK)
_FREE = ("vitdet.modeling_vitdet", "sam2.modeling_sam2", "sam3.modeling_sam3",
         "edgetam_video.modeling_edgetam_video")  # fmt: skip


def _known(**methods: str) -> When:
    """Where methods have the code of this version; each by its fingerprints, with a space between them."""
    prints = {name: {KnownBody(one, WRITTEN_FOR) for one in found.split()} for name, found in methods.items()}
    return When(bodies=prints)


def windows_of(x: Tensor, window: int) -> tuple[Tensor, tuple[int, int]]:
    """(B, H, W, C) to (windows, window, window, C) of the padded map, and the padded height and width."""
    rows, columns = windows_over(x.shape[1], window), windows_over(x.shape[2], window)
    windows = partition(pad_to(x, (window, window)), (window, window), columns)
    return windows.view(-1, window, window, x.shape[-1]), (rows * window, columns * window)


def map_of(windows: Tensor, window: int, size: tuple[int, int]) -> Tensor:
    """(windows, window, window, C) back to (B, H, W, C), `size` being the height and width before padding."""
    height, width = size
    grid = windows_over(height, window), windows_over(width, window)
    return merge(windows, (window, window), grid)[:, :height, :width].contiguous()


class _ThereAndBack(nn.Module):
    """Windows from SAM's layer or from VitDet's functions, each centred, and the map again."""

    def __init__(self, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        from transformers.models.vitdet import modeling_vitdet

        home: Any = self.layer or modeling_vitdet
        windows, padded = home.window_partition(x, 4)
        windows = windows - windows.mean((1, 2), keepdim=True)
        return home.window_unpartition(windows, 4, padded, (x.shape[1], x.shape[2]))


def _sam_layer() -> nn.Module:
    from transformers import SamVisionConfig
    from transformers.models.sam.modeling_sam import SamVisionLayer

    config = SamVisionConfig(hidden_size=8, num_attention_heads=2, image_size=32, patch_size=4, mlp_dim=8)
    config._attn_implementation = "eager"
    return _ThereAndBack(SamVisionLayer(config, window_size=4))


def _maps() -> list[tuple[Tensor]]:
    import torch

    # For windows of 4: whole, padded on one or both sides, and lower than a window.
    return [(torch.randn(*size, 8),) for size in ((2, 8, 10), (1, 9, 7), (3, 4, 12), (2, 3, 5))]


@_row(
    f"{_MODELS}.sam.modeling_sam.SamVisionLayer",
    f"{_MODELS}.sam_hq.modeling_sam_hq.SamHQVisionLayer",
    f"{_MODELS}.got_ocr2.modeling_got_ocr2.GotOcr2VisionLayer",
    name="sam-windows",
    when=_known(window_partition="be85aae46dd8", window_unpartition="048886d8d3ed"),
    proof=Proof(_sam_layer, _maps, leaner=("trace",)),
)
class _SamVisionLayer:
    """A layer of SAM's encoder with its windows as methods."""

    def window_partition(self, hidden_states: Tensor, window_size: int) -> tuple[Tensor, tuple[int, int]]:
        """(B, H, W, C) to (windows, window_size, window_size, C), and the padded height and width."""
        return windows_of(hidden_states, window_size)

    def window_unpartition(
        self, windows: Tensor, window_size: int, padding_shape: tuple[int, int], original_shape: tuple[int, int]
    ) -> Tensor:
        """(windows, window_size, window_size, C) back to (B, H, W, C)."""
        return map_of(windows, window_size, original_shape)


@_row(
    *(f"{_MODELS}.{module}.window_partition" for module in _FREE),
    name="padded-window-partition",
    proof=Proof(_ThereAndBack, _maps, leaner=("trace",), beside=("padded-window-unpartition",)),
)
def window_partition(original: object, hidden_state: Tensor, window_size: int) -> tuple[Tensor, tuple[int, int]]:
    """(B, H, W, C) to (windows, window_size, window_size, C), and the padded height and width."""
    return windows_of(hidden_state, window_size)


@_row(
    *(f"{_MODELS}.{module}.window_unpartition" for module in _FREE),
    name="padded-window-unpartition",
    proof=Proof(_ThereAndBack, _maps, leaner=("trace",), beside=("padded-window-partition",)),
)
def window_unpartition(
    original: object,
    windows: Tensor,
    window_size: int,
    pad_height_width: tuple[int, int],
    height_width: tuple[int, int],
) -> Tensor:
    """(windows, window_size, window_size, C) back to (B, H, W, C)."""
    return map_of(windows, window_size, height_width)


DEPTH_PRO_LINK = "https://github.com/huggingface/transformers/issues/26790"
DEPTH_PRO_WHY = (
    "DepthPro: the loop over patches and `if n_patches == batch_size` keep the number of patches of the example"
)
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
    why=DEPTH_PRO_WHY,
    link=DEPTH_PRO_LINK,
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


@patch(f"{_MODULE}.merge_patches", name="depth-pro-merge", why=DEPTH_PRO_WHY, link=DEPTH_PRO_LINK, proof=_WHOLE)
def merge_patches(original: Callable[..., Tensor], patches: Tensor, batch_size: int, padding: int) -> Tensor:
    """(patches * B, C, S, S) to one square map (B, C, side, side); `padding` cells are cut off where patches meet."""
    _, channels, size, _ = patches.shape
    x = patches.reshape(-1, batch_size, channels, size, size)
    count = x.shape[0]
    side = _whole_root(count)
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


def _whole_root(count: Any) -> Any:
    root = count**0.5
    return truncated(root) if symbolic(count) else int(root)


def _at_most(value: object, bound: int) -> Any:
    if isinstance(value, Tensor):
        return value.clamp(max=bound)
    return torch.sym_min(value, bound)


MOBILEVIT_LINK = "https://github.com/pytorch/pytorch/issues/147496"
_LAYER = "transformers.models.mobilevitv2.modeling_mobilevitv2.MobileViTV2Layer"


def _folded_and_back(layer: Any, x: Tensor) -> Tensor:
    patches, size = layer.unfolding(x)
    return layer.folding(patches - patches.mean(-1, keepdim=True), size)


def _layer() -> nn.Module:
    from transformers import MobileViTV2Config
    from transformers.models.mobilevitv2.modeling_mobilevitv2 import MobileViTV2Layer

    config = MobileViTV2Config(image_size=64, width_multiplier=0.25)
    layer = MobileViTV2Layer(config, in_channels=4, out_channels=4, attn_unit_dim=8, n_attn_blocks=1)
    return computing(_folded_and_back, layer)


@patch(
    _LAYER,
    name="mobilevitv2-folds",
    why="F.fold to a dynamic output size: col2im fails in the TorchScript exporter, F.unfold pins the size",
    link=MOBILEVIT_LINK,
    when=_known(unfolding="c7fc503966b3", folding="643f84de582a"),
    proof=Proof(
        _layer,
        # (7, 9): the last row and column are in no patch.
        lambda: [(torch.randn(b, 4, h, w),) for b, h, w in ((2, 8, 6), (1, 4, 10), (3, 7, 9), (2, 2, 2))],
        fails=("trace",),
        reason="col2im",
    ),
)
class _MobileViTV2Layer:
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
