"""Mochi's attention: a loop over the batch in which each text keeps its own tokens, as one masked attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.proof_cases import randomised


class _Joint(torch.nn.Module):
    """Attention over pixels and a padded text."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers.models.attention_processor import MochiAttention, MochiAttnProcessor2_0

        self.attention = randomised(MochiAttention(8, 6, MochiAttnProcessor2_0(), heads=2, dim_head=4))

    def forward(self, x: Tensor, text: Tensor, mask: Tensor) -> Any:
        return self.attention(x, text, attention_mask=mask)


def _texts() -> list[tuple[Tensor, ...]]:
    made: list[tuple[Tensor, ...]] = []
    for batch, pixels, words in ((2, 5, 4), (3, 7, 6), (1, 2, 1)):
        mask = torch.rand(batch, words) > 0.4
        made.append((torch.randn(batch, pixels, 8), torch.randn(batch, words, 6), mask))
    return made


@op(
    "diffusers.models.attention_processor.MochiAttnProcessor2_0.__call__",
    name="mochi-attention",
    why="for idx in range(batch_size): torch.nonzero(mask): as many texts as the example has",
    reason="data-dependent|relative error|onnxruntime fails|broadcast|inferred|shape",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/attention_processor.py",
    tries=_texts,
    case=_Joint,
)
def attend(
    original: object,
    processor: object,
    attn: Any,
    hidden_states: Tensor,
    encoder_hidden_states: Tensor,
    attention_mask: Tensor,
    image_rotary_emb: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden_states: (batch, pixels, channels); encoder_hidden_states: (batch, words, channels); attention_mask:
    (batch, words). The words that are masked come last in the answer, as zeros."""
    pixels, words = hidden_states.shape[1], encoder_hidden_states.shape[1]
    query, key, value = _heads(attn, hidden_states, (attn.to_q, attn.to_k, attn.to_v), (attn.norm_q, attn.norm_k))
    if image_rotary_emb is not None:
        query, key = _rotated(query, *image_rotary_emb), _rotated(key, *image_rotary_emb)
    added = _heads(attn, encoder_hidden_states, (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj),
                   (attn.norm_added_q, attn.norm_added_k))  # fmt: skip
    pairs = zip((query, key, value), added, strict=True)
    query, key, value = (torch.cat(pair, dim=1).transpose(1, 2) for pair in pairs)
    kept = attention_mask != 0
    seen = torch.cat([torch.ones_like(hidden_states[:, :, 0], dtype=torch.bool), kept], dim=1)
    out = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None, None, :])
    image, text = out.transpose(1, 2).flatten(2, 3).split_with_sizes((pixels, words), dim=1)
    text = _kept_first(text, kept)
    image = attn.to_out[1](attn.to_out[0](image))
    # The model's last block makes no text, and lacks the layer.
    return image, attn.to_add_out(text) if hasattr(attn, "to_add_out") else text


def _heads(attn: Any, x: Tensor, layers: tuple[Any, Any, Any], norms: tuple[Any, Any]) -> tuple[Tensor, ...]:
    """Query, key and value: (batch, tokens, heads, dim); the first two normalized."""
    made = [layer(x).unflatten(2, (attn.heads, -1)) for layer in layers]
    return (*(norm(one) if norm is not None else one for norm, one in zip(norms, made, strict=False)), made[2])


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (batch, tokens, heads, dim). Pairs of neighbours are rotated, in float32."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    pairs = (even * cos - odd * sin).to(x.dtype), (even * sin + odd * cos).to(x.dtype)
    return torch.stack(pairs, dim=-1).flatten(-2)


def _kept_first(x: Tensor, kept: Tensor) -> Tensor:
    """Rows of x (batch, words, channels) that are kept (batch, words), in their order; then zeros."""
    before = kept.long().cumsum(1)
    others = (~kept).long().cumsum(1) + before[:, -1:]
    place = torch.where(kept, before, others) - 1
    filled = x.masked_fill(~kept[..., None], 0.0)
    return torch.zeros_like(x).scatter(1, place[..., None].expand_as(x), filled)
