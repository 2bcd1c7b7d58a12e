"""Attention: softmax of scaled scores with a mask, causal or not, with heads that share keys.

One form for every call, written as the nodes that onnxruntime is fastest on: keys are transposed once, the queries
alone are scaled, a mask is turned into numbers without touching the scores, so that layers share the result, and heads
that share keys are rows of one product, so that no key is copied. From opset 23 on it is one node.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from onnxpatch.formulas import attention_node
from onnxpatch.formulas.einops.axes import plan_axes
from onnxpatch.formulas.einops.rearrange import rearrange
from onnxpatch.formulas.nodes import numbers


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: Any = None,
    causal: bool = False,
    empty_rows: bool = True,
) -> Tensor:
    """softmax(query key^T scale + mask) value; a query that may see no key gives zeros, as in torch.

    query, key, value: (..., heads, length, features); a number of key heads that divides that of the query heads is
    shared by them. mask: bool (True: may attend) or added to the scores, broadcast to (..., queries, keys).
    scale: 1 / sqrt(features) where it is None. causal: in place of a mask, each query sees the keys up to its own
    place, counted from the first of both. empty_rows: False for a mask that lets every query see a key.
    """
    node, seen = attention_node.form(query, key, value, mask, scale, causal), mask if empty_rows else None
    if node is None:
        output = _written_out(query, key, value, upto(query, key) if causal else mask, scale)
    elif mask is None or mask.dtype == torch.bool:
        output, seen = attention_node.attend(node, query, key, value, mask, scale, causal), None
    else:  # the node takes the lowest number for -inf
        above = mask.clamp(min=torch.finfo(mask.dtype).min / 2)
        output = attention_node.attend(node, query, key, value, above, scale, causal)
    return output if seen is None else _seen(output, seen)


def _written_out(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: Any) -> Tensor:
    shared = _shared(query, key)
    if shared and query.dim() != 4:
        key, value, shared = repeat_heads(key, query.shape[-3]), repeat_heads(value, query.shape[-3]), None
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query = query if isinstance(scale, float | int) and scale == 1 else query * scale
    if shared:
        query = _rearranged(query, "b (g h) n d -> b g (h n) d", g=shared[1])
    scores = torch.matmul(query, key.transpose(-1, -2))
    if shared:
        scores = _rearranged(scores, "b g (h n) k -> b (g h) n k", h=shared[0] // shared[1])
    weights = torch.softmax(scores if mask is None else _masked(scores, mask), -1)
    if shared:
        weights = _rearranged(weights, "b (g h) n k -> b g (h n) k", g=shared[1])
    output = torch.matmul(weights, value)
    return _rearranged(output, "b g (h n) d -> b (g h) n d", h=shared[0] // shared[1]) if shared else output


def _shared(query: Tensor, key: Tensor) -> tuple[int, int] | None:
    """The numbers of heads of queries and keys, where keys are shared."""
    if query.dim() < 3:
        return None
    heads, shared = numbers([query.shape[-3], key.shape[-3]])
    return None if shared == heads or shared == 1 else (heads, shared)


def _rearranged(x: Tensor, pattern: str, **given: int) -> Tensor:
    return rearrange(x, plan_axes(pattern, "rearrange", tuple(given), x.dim()), list(given.values()))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return scores + mask
    # At most float32's: on its way into a graph a number of Python passes through float32, and would be -inf.
    least = max(torch.finfo(scores.dtype).min, torch.finfo(torch.float32).min)
    lowest = torch.full((), least, dtype=scores.dtype, device=scores.device)
    if mask.dim() == scores.dim() and numbers(mask.shape[-3:-2]) != [1]:  # as large as the scores: one pass, not two
        return torch.where(mask, scores, lowest)
    return scores + torch.where(mask, torch.zeros_like(lowest), lowest)


def _seen(output: Tensor, mask: Tensor) -> Tensor:
    """`output` with zeros for queries that `mask` lets see no key; exported softmax gives their mean, or NaN."""
    if mask.dtype == torch.bool:  # there it is the mean, and a product is faster than Where
        return output * mask.to(output.dtype).amax(-1, keepdim=True)
    return torch.where(mask.amax(-1, keepdim=True) > -math.inf, output, torch.zeros((), dtype=output.dtype))


def upto(query: Tensor, key: Tensor) -> Tensor:
    """(queries, keys): True where a key does not come after the query, counted from the first of both."""
    rows = torch.arange(query.shape[-2], device=query.device)
    return rows[:, None] >= torch.arange(key.shape[-2], device=query.device)


def repeat_heads(x: Tensor, heads: int, axis: int = -3) -> Tensor:
    """Each key or value head as often as queries share it; the numbers of heads are known at export."""
    axis = axis % x.dim()
    times = heads // x.shape[axis]
    spread = [-1] * axis + [-1, times] + [-1] * (x.dim() - axis - 1)
    return x.unsqueeze(axis + 1).expand(spread).flatten(axis, axis + 1)
