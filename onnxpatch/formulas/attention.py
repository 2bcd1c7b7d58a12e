"""Attention written out: softmax of scores, masks that leave a query without a key, causal masks, grouped heads."""

from __future__ import annotations

import math

import torch


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """softmax(query key^T scale + mask) value, written out; a query that may see no key gives zeros, as in torch.

    mask: bool (True: may attend) or added to the scores, broadcast to (..., queries, keys).
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    lowest = torch.finfo(scores.dtype).min
    scores = torch.where(mask, scores, lowest) if mask.dtype == torch.bool else scores + mask
    return seen(torch.matmul(torch.softmax(scores, -1), value), mask)


def seen(output: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`output` with zeros for queries that `mask` lets see no key; exported softmax gives their mean, or NaN."""
    any_key = _open(mask).to(output.dtype).amax(-1, keepdim=True) > 0
    return torch.where(any_key, output, torch.zeros_like(output))


def _open(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dtype == torch.bool else mask > -math.inf


def causal(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """(queries, keys): True where a key does not come after the query, counted from the first of both."""
    rows = torch.arange(query.shape[-2], device=query.device)
    return rows[:, None] >= torch.arange(key.shape[-2], device=query.device)


def repeat_heads(x: torch.Tensor, heads: int, axis: int = -3) -> torch.Tensor:
    """Each key or value head as often as queries share it; the numbers of heads are known at export."""
    axis = axis % x.dim()
    times = heads // x.shape[axis]
    spread = [-1] * axis + [-1, times] + [-1] * (x.dim() - axis - 1)
    return x.unsqueeze(axis + 1).expand(spread).flatten(axis, axis + 1)
