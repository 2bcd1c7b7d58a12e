"""`maybe_pad` and its like: padding to a multiple that a Python `if` on the size decides, and so freezes at export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.windows import pad_to

WRITTEN_FOR = "transformers 5.23.0"

FROZEN = "exported with dynamic height and width, the graph is wrong or fails at sizes that need other padding"
LINK = "https://github.com/microsoft/Swin-Transformer/issues/301"


def _patch_embeddings() -> nn.Module:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinPatchEmbeddings

    return _First(SwinPatchEmbeddings(SwinConfig(image_size=16, patch_size=4, embed_dim=8)))


class _First(nn.Module):
    """Calls a module and returns its first output."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)[0]


def _images(*sizes: tuple[int, int, int]) -> list[tuple[Tensor]]:
    return [(torch.randn(b, 3, height, width),) for b, height, width in sizes]


@patch(
    "transformers.models.swin.modeling_swin.SwinPatchEmbeddings",
    "transformers.models.swinv2.modeling_swinv2.Swinv2PatchEmbeddings",
    "transformers.models.donut.modeling_donut_swin.DonutSwinPatchEmbeddings",
    "transformers.models.maskformer.modeling_maskformer_swin.MaskFormerSwinPatchEmbeddings",
    "transformers.models.focalnet.modeling_focalnet.FocalNetPatchEmbeddings",
    name="pad-to-patches",
    why=FROZEN,
    link=LINK,
    when=When(bodies={"maybe_pad": {KnownBody("b7656a027844", WRITTEN_FOR)}}),
    proof=Proof(
        _patch_embeddings,
        lambda: _images((2, 16, 20), (1, 18, 21), (3, 12, 9)),
        fails=("dynamo", "trace"),
        reason="shape",
    ),
)
class PatchEmbeddings:
    """Patch embeddings that pad the image, (B, C, H, W), to whole patches."""

    patch_size: Any

    def maybe_pad(self, pixel_values: Tensor, height: int, width: int) -> Tensor:
        """Pad always; by nothing where nothing is missing."""
        return pad_to(pixel_values, tuple(self.patch_size), channels_last=False)
