"""Rotary embeddings whose frequencies grow with the length (dynamic NTK), at every length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, Settings, When, patch
from onnxpatch.formulas.lent import attributes_lent

WRITTEN_FOR = "transformers 5.23.0"
# forward as most models have it, then with other dtypes of the angles, other orders of sine and cosine, and for images
_FORWARD = ("8851abe280f0", "365d5916be02", "1f5de54a8712", "0edd352fd84b", "5b3dbb316e89", "c3342476249a")


class _Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        rope = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
        config = LlamaConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=8, rope_parameters=rope)
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.rotary(x, torch.arange(x.shape[1])[None])
        return x * cos + x.flip(-1) * sin


def _grows(module: nn.Module, settings: Settings) -> str | None:
    """The reason to leave a rotary embedding alone."""
    kind = getattr(module, "rope_type", "")
    return None if isinstance(kind, str) and "dynamic" in kind else "its frequencies are the same at every length"


@patch(
    "transformers.models.llama.modeling_llama.LlamaRotaryEmbedding",
    name="dynamic-rope",
    why="if seq_len > self.max_seq_len_cached: the frequencies are those of the example's length",
    link="https://github.com/huggingface/transformers/issues/25104",
    when=When(bodies={"forward": {KnownBody(each, WRITTEN_FOR) for each in _FORWARD}}, accepts=_grows),
    proof=Proof(
        build=_Rotary,
        # Trained for 8 positions: the frequencies change beyond these.
        inputs=lambda: [(torch.randn(b, n, 8),) for b, n in ((2, 5), (3, 20), (1, 1), (2, 11))],
        fails=("dynamo", "trace"),
        reason="relative error|data-dependent",
    ),
)
class LlamaRotaryEmbedding:
    """Angles of positions, for heads of queries and keys."""

    def forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """position_ids: (batch, length), or with an axis in front for the axes of an image."""
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies, self.attention_scaling = ROPE_INIT_FUNCTIONS[self.rope_type](
            self.config, x.device, seq_len=torch.max(position_ids) + 1
        )
        # The original forward updates its frequencies by a Python `if` on the length, for "dynamic" types only. They
        # are computed here for every length, so while it runs the type is one that is never updated.
        with attributes_lent(self, rope_type="default", inv_freq=frequencies):
            return super().forward(x, position_ids)  # type: ignore[misc]
