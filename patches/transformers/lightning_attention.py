"""MiniMax's lightning attention: a loop over blocks of the length, as one Scan over tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import onnxpatch
from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.symbolic import symbolic

WRITTEN_FOR = "transformers 5.23.0"


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import MiniMaxConfig
        from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

        config = MiniMaxConfig(hidden_size=8, num_attention_heads=2, head_dim=4, block_size=4, num_hidden_layers=2,
                               layer_types=["linear_attention"] * 2)  # fmt: skip
        self.attention = randomised(MiniMaxLightningAttention(config, 0))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, None, mask)[0]


def _texts() -> list[tuple[Tensor, Tensor]]:
    # For blocks of 4: lengths that end inside a block, and one that is shorter.
    return [(torch.randn(b, n, 8), (torch.rand(b, n) > 0.2).long()) for b, n in ((2, 6), (3, 9), (1, 1))]


@patch(
    "transformers.models.minimax.modeling_minimax.MiniMaxLightningAttention",
    name="lightning-attention",
    why="for i in range(num_blocks): as many blocks as the example's length has, and the last one as long as its rest",
    link="https://github.com/huggingface/transformers/pull/35831",
    when=When(bodies={"forward": {KnownBody("74222c6b7bf0", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Attention,
        inputs=_texts,
        fails=("dynamo", "trace"),
        reason="cannot be reshaped|broadcast|relative error",
    ),
)
class MiniMaxLightningAttention:
    """Linear attention, in which earlier steps decay by a factor for each head."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        past_key_values: Any = None,
        **others: object,
    ) -> tuple[Tensor, Tensor]:
        """hidden_states: (batch, length, hidden); attention_mask: (batch, length). Returns the same, and the sum of
        keys times values, (batch, heads, features, features)."""
        batch, length, _ = hidden_states.shape
        if not symbolic(length):
            return super().forward(  # type: ignore[misc]
                hidden_states, position_embeddings, attention_mask, past_key_values, **others
            )
        operands = self.act_fn(self.qkv_proj(hidden_states))
        if attention_mask is not None:
            operands = (operands * attention_mask[:, :, None]).to(operands.dtype)
        operands = operands.reshape(batch, length, self.num_attention_heads, 3 * self.head_dim)
        query, key, value = (part.transpose(0, 1) for part in operands.split(self.head_dim, dim=3))

        known = None if past_key_values is None else past_key_values.get_linear_cache(self.layer_idx)
        if known is None:
            shape = [batch, self.num_attention_heads, self.head_dim, self.head_dim]
            known = torch.zeros(shape, device=value.device, dtype=value.dtype)
        decay = torch.exp(-self.slope_rate)

        def step(known: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            q, k, v = row
            known = decay * known + k[..., None] * v[:, :, None, :]
            return known, (q[..., None] * known).sum(2)

        last, outs = onnxpatch.scan(step)(known, (query, key, value))
        output = self.norm(outs.transpose(0, 1).reshape(batch, length, self.num_attention_heads * self.head_dim))
        output = self.out_proj(functional.sigmoid(self.output_gate(hidden_states)) * output)
        if past_key_values is not None:
            past_key_values.set_linear_cache(self.layer_idx, last)
        return output, last
