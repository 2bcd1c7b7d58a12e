"""Images of different sizes in one row of patches: attention within each of them, by a mask in place of a loop."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onnxpatch import KnownBody, Proof, When, patch

WRITTEN_FOR = "transformers 5.23.0"

_MODELS = "transformers.models"


class _Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
        from transformers.models.qwen2_vl.modeling_qwen2_vl import VisionAttention

        config = Qwen2VLVisionConfig(embed_dim=8, num_heads=2)
        config._attn_implementation = "sdpa"
        self.attention = VisionAttention(config)

    def forward(self, x: Tensor, lengths: Tensor, angles: Tensor) -> Tensor:
        ends = F.pad(lengths.cumsum(0), (1, 0))
        return self.attention(x, ends, (angles.cos(), angles.sin()))


def _row(*lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(sum(lengths), 8), torch.tensor(lengths), torch.randn(sum(lengths), 4)


@patch(
    f"{_MODELS}.qwen2_vl.modeling_qwen2_vl.VisionAttention",
    f"{_MODELS}.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLVisionAttention",
    f"{_MODELS}.qwen3_vl.modeling_qwen3_vl.Qwen3VLVisionAttention",
    f"{_MODELS}.glm4v.modeling_glm4v.Glm4vVisionAttention",
    name="packed-attention",
    why="Qwen2-VL: torch.split(tensor, lengths.tolist()) keeps the number and the sizes of the example's images",
    link="https://github.com/huggingface/transformers/issues/33778",
    when=When(exporters=("dynamo", "trace"), bodies={"forward": {KnownBody("73bafba8a509", WRITTEN_FOR)}}),
    proof=Proof(
        _Packed,
        lambda: [_row(4, 6), _row(3, 5, 4), _row(7), _row(1, 2, 3, 4)],
        fails=("dynamo", "trace"),
        reason="data-dependent|Split|split",
    ),
)
class PackedAttention:
    """One attention over the whole row, in which a patch sees those of its own image."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        max_seqlen: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """hidden_states: (patches, width); cu_seqlens: (images + 1,), where each begins."""
        # Each model's file has its own.
        home = next(one for one in type(self).__mro__ if one.__module__.startswith(_MODELS))
        turned = importlib.import_module(home.__module__).apply_rotary_pos_emb_vision
        count = hidden_states.shape[0]
        query, key, value = self.qkv(hidden_states).reshape(count, 3, self.num_heads, -1).permute(1, 0, 2, 3).unbind(0)
        query, key = turned(query, key, *position_embeddings)  # type: ignore[misc]
        query, key, value = (one.transpose(0, 1).unsqueeze(0) for one in (query, key, value))
        image = (torch.arange(count, device=hidden_states.device)[:, None] >= cu_seqlens[None, 1:]).sum(1)
        mask = image[:, None] == image[None, :]
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scaling)
        return self.proj(found.transpose(1, 2).reshape(count, -1))
