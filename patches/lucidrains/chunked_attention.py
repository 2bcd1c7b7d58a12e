"""Attention in chunks of queries and keys, a Python loop over as many chunks as the example has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


def _attention(x: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with a mask and a bias, as it looks ahead and as it does not."""
    from memory_efficient_attention_pytorch.memory_efficient_attention import memory_efficient_attention

    sizes = dict(q_bucket_size=3, k_bucket_size=4)
    q, k, v = x.unsqueeze(1).tile(1, 3, 1, 1).unsqueeze(0).cumsum(2).unbind(2)
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    masked = memory_efficient_attention(q, k, v, mask=mask, attn_bias=bias, **sizes)
    return masked, memory_efficient_attention(q, k, v, mask=mask, causal=True, **sizes)


def _inputs() -> list[tuple[Tensor, ...]]:
    made: list[tuple[Tensor, ...]] = []
    for batch, length in ((2, 7), (3, 8), (1, 1), (2, 15)):
        mask = torch.rand(batch, length) > 0.3
        mask[0, 0] = length < 8  # a row that sees nothing, where it does not look ahead
        made.append((torch.randn(batch, length, 4), mask, torch.randn(1, length, length)))
    return made


@op(
    "memory_efficient_attention_pytorch.memory_efficient_attention.memory_efficient_attention",
    name="chunked-attention",
    why="q.split(q_bucket_size, dim=-2) of a dynamic length: as many chunks as the example has",
    reason="Split|split|specialized|shape",
    link="https://github.com/lucidrains/memory-efficient-attention-pytorch",
    requires=("memory-efficient-attention-pytorch",),
    tries=_inputs,
    case=_attention,
    unchanged="fixed sizes",
)
def chunked_attention(
    original: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    attn_bias: Tensor | None = None,
    q_bucket_size: int = 512,
    k_bucket_size: int = 1024,
    eps: float = 1e-8,
    dropout: float = 0.0,
    training: bool = False,
) -> Tensor:
    """Computes all chunks at once: (batch, heads, queries, keys) weights are in memory.

    A row that sees nothing has the mean of the chunks that the loop does not skip, as in eager.
    """
    if (training and dropout) or not (symbolic(q.shape[-2]) or symbolic(k.shape[-2])):
        return NotImplemented
    weights = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
    if attn_bias is not None:
        weights = weights + attn_bias
    lowest = -torch.finfo(weights.dtype).max
    if mask is not None:
        weights = weights.masked_fill(~mask[:, None, None], lowest)
    skipped: Any = None
    if causal:
        rows = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)
        columns = torch.arange(k.shape[-2], device=q.device)
        weights = weights.masked_fill(columns > rows, lowest)
        last_row = torch.div(rows, q_bucket_size, rounding_mode="floor") * q_bucket_size + q_bucket_size - 1
        first_column = torch.div(columns, k_bucket_size, rounding_mode="floor") * k_bucket_size
        skipped = first_column > last_row.clamp(max=q.shape[-2] - 1)
    exponentials = (weights - weights.amax(-1, keepdim=True)).exp()
    if skipped is not None:
        exponentials = exponentials.masked_fill(skipped, 0.0)
    return torch.matmul(exponentials, v) / (exponentials.sum(-1, keepdim=True) + eps)
