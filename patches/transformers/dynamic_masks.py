"""Doge's dynamic mask: each head keeps as many keys as its window is long; in a short text, all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.symbolic import as_tensor, symbolic

WRITTEN_FOR = "transformers 5.23.0"


class _Mask(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import DogeConfig
        from transformers.models.doge.modeling_doge import DogeAttention

        config = DogeConfig(hidden_size=8, num_attention_heads=2, keep_window_size=6)
        self.attention: Any = randomised(DogeAttention(config, 0))

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        return self.attention.prepare_dynamic_mask(x, states, 6)


@patch(
    "transformers.models.doge.modeling_doge.DogeAttention",
    name="doge-mask",
    why="if attn_mask.shape[-1] > keep_window_size: decided by the example's length",
    link="https://github.com/huggingface/transformers/pull/35891",
    when=When(bodies={"prepare_dynamic_mask": {KnownBody("183f32b653c4", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Mask,
        # The window has 6 keys: texts shorter and longer than it.
        inputs=lambda: [(torch.randn(b, n, 8), torch.rand(b, 2, n)) for b, n in ((2, 5), (3, 9), (1, 1))],
        fails=("dynamo", "trace"),
        reason="relative error|inferred",
    ),
)
class DogeAttention:
    """Attention to the keys of the largest weights."""

    def prepare_dynamic_mask(
        self: Any,
        hidden_states: Tensor,
        dt_states: Tensor,
        keep_window_size: int = 2048,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """(batch, heads, queries, keys) of dt_states (batch, heads, keys) and a mask (batch, 1, queries, keys)."""
        queries, keys = hidden_states.shape[1], dt_states.shape[-1]
        if not symbolic(keys):
            return super().prepare_dynamic_mask(  # type: ignore[misc]
                hidden_states, dt_states, keep_window_size, attention_mask
            )
        least = torch.finfo(hidden_states.dtype).min
        weights = dt_states[:, :, None, :].expand(-1, -1, queries, -1)
        if isinstance(attention_mask, Tensor):
            seen = attention_mask[:, :, :, :keys]
            weights = weights.masked_fill(~seen if seen.dtype == torch.bool else seen != 0, least)
        # Padded by more than the window, so that there is a smallest of the window's in a short text too.
        padded = torch.nn.functional.pad(weights, (0, keep_window_size), value=float("-inf"))
        best = torch.topk(padded, keep_window_size, dim=-1).indices
        kept = torch.zeros_like(padded).scatter(-1, best, 1.0)[..., :keys]
        short = as_tensor(keys, torch.int64) <= keep_window_size
        return weights.masked_fill((kept == 0.0) & ~short, least)
