"""Windows of transformers' Swin V2, Swin2SR and MaskFormer at dynamic sizes: padding and shift mask.

Window and shift of these layers are fixed when the layer is made.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_models import OfMap
from onnxpatch.formulas.windows import PaddedWindows, shift_mask

WRITTEN_FOR = "transformers 5.23.0"

LINK = "https://github.com/microsoft/Swin-Transformer/issues/301"
FROZEN = "exported with dynamic height and width, the graph keeps the padding, windows and shift mask of its example"
_SWINV2 = "transformers.models.swinv2.modeling_swinv2"
_SWIN2SR = "transformers.models.swin2sr.modeling_swin2sr"
_MASKFORMER = "transformers.models.maskformer.modeling_maskformer_swin"


def _maps() -> list[tuple[Tensor]]:
    # For windows of 4: whole, padded, a map as high as one window, and odd sizes.
    return [(torch.randn(*size, 8),) for size in ((2, 8, 12), (1, 9, 6), (3, 4, 8), (2, 11, 5))]


def _swinv2_layer() -> nn.Module:
    from transformers import Swinv2Config
    from transformers.models.swinv2.modeling_swinv2 import Swinv2Layer

    return OfMap(Swinv2Layer(Swinv2Config(image_size=32, embed_dim=8, window_size=4), 8, (8, 8), 2, 0.0, 2))


def _maskformer_layer() -> nn.Module:
    from transformers import MaskFormerSwinConfig
    from transformers.models.maskformer.modeling_maskformer_swin import MaskFormerSwinLayer

    config = MaskFormerSwinConfig(image_size=32, embed_dim=8, window_size=4)
    return OfMap(MaskFormerSwinLayer(config, 8, (8, 8), 2, 0.0, 2))


@patch(
    f"{_SWINV2}.Swinv2Layer",
    f"{_SWIN2SR}.Swin2SRLayer",
    name="swinv2-layer",
    why=FROZEN,
    link=LINK,
    when=When(
        bodies={
            "maybe_pad": {KnownBody("92c2f7144880", WRITTEN_FOR)},
            "get_attn_mask": {KnownBody("069b3902dd11", WRITTEN_FOR)},
        }
    ),
    proof=Proof(_swinv2_layer, _maps, fails=("dynamo", "trace"), reason="cannot be reshaped"),
)
class Swinv2Layer(PaddedWindows):
    """Shifted-window attention whose window and shift are settled when the layer is made."""

    shift_size: int

    def get_attn_mask(
        self, height: int, width: int, dtype: torch.dtype, device: torch.device | None = None
    ) -> Tensor | None:
        """(windows, window cells, window cells) for a padded map, or None without a shift."""
        if not self.shift_size:
            return None
        window, shift = (self.window_size, self.window_size), (self.shift_size, self.shift_size)
        like = torch.empty(0, dtype=dtype, device=device)
        return shift_mask(window, shift, (height // window[0], width // window[1]), like)


@patch(
    f"{_MASKFORMER}.MaskFormerSwinLayer",
    name="maskformer-swin-layer",
    why=FROZEN,
    link=LINK,
    when=When(
        bodies={
            "maybe_pad": {KnownBody("944d2b5e4f32", WRITTEN_FOR)},
            "get_attn_mask": {KnownBody("95aa288c6ae2", WRITTEN_FOR)},
        }
    ),
    proof=Proof(_maskformer_layer, _maps, fails=("dynamo", "trace"), reason="cannot be reshaped"),
)
class MaskFormerSwinLayer(PaddedWindows):
    """Shifted-window attention of MaskFormer's backbone."""

    shift_size: int

    def get_attn_mask(
        self,
        input_resolution: tuple[int, int],
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor | None:
        """(windows, window cells, window cells) for a padded map, or None without a shift."""
        return Swinv2Layer.get_attn_mask(self, *input_resolution, dtype, device)  # type: ignore[arg-type]
