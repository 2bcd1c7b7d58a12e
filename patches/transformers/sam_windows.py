"""Windows of SAM, SAM 2, SAM 3, VitDet and their copies: partitioned with padding, put back and cropped."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.windows import merge, pad_to, partition, windows_over

WRITTEN_FOR = "transformers 5.23.0"

LINK = "https://github.com/huggingface/transformers/issues/33929"
WHY = "(window_size - height % window_size) % window_size keeps torch.export busy for minutes, or the graph is wrong"
_MODELS = "transformers.models"
_FREE = ("vitdet.modeling_vitdet", "sam2.modeling_sam2", "sam3.modeling_sam3",
         "edgetam_video.modeling_edgetam_video")  # fmt: skip


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


@patch(
    f"{_MODELS}.sam.modeling_sam.SamVisionLayer",
    f"{_MODELS}.sam_hq.modeling_sam_hq.SamHQVisionLayer",
    f"{_MODELS}.got_ocr2.modeling_got_ocr2.GotOcr2VisionLayer",
    name="sam-windows",
    why=WHY,
    link=LINK,
    when=When(
        bodies={
            "window_partition": {KnownBody("be85aae46dd8", WRITTEN_FOR)},
            "window_unpartition": {KnownBody("048886d8d3ed", WRITTEN_FOR)},
        }
    ),
    proof=Proof(_sam_layer, _maps, leaner=("trace",)),
)
class SamVisionLayer:
    """A layer of SAM's encoder with its windows as methods."""

    def window_partition(self, hidden_states: Tensor, window_size: int) -> tuple[Tensor, tuple[int, int]]:
        """(B, H, W, C) to (windows, window_size, window_size, C), and the padded height and width."""
        return windows_of(hidden_states, window_size)

    def window_unpartition(
        self, windows: Tensor, window_size: int, padding_shape: tuple[int, int], original_shape: tuple[int, int]
    ) -> Tensor:
        """(windows, window_size, window_size, C) back to (B, H, W, C)."""
        return map_of(windows, window_size, original_shape)


@patch(
    *(f"{_MODELS}.{module}.window_partition" for module in _FREE),
    name="padded-window-partition",
    why=WHY,
    link=LINK,
    proof=Proof(_ThereAndBack, _maps, leaner=("trace",), beside=("padded-window-unpartition",)),
)
def window_partition(original: object, hidden_state: Tensor, window_size: int) -> tuple[Tensor, tuple[int, int]]:
    """(B, H, W, C) to (windows, window_size, window_size, C), and the padded height and width."""
    return windows_of(hidden_state, window_size)


@patch(
    *(f"{_MODELS}.{module}.window_unpartition" for module in _FREE),
    name="padded-window-unpartition",
    why=WHY,
    link=LINK,
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
