"""Scaled dot product attention with a mask, causal or not, and with shared key heads (GQA).

From opset 23 on it is one node. Below, it is written in the nodes that are fastest in onnxruntime: keys are transposed
once; only the queries are scaled; a bool mask becomes a float mask before it meets the scores, so that all layers share
it; query heads that share keys are rows of one product, so that no key is copied.
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
    """softmax(query key^T scale + mask) value. A query that may attend to no key gives zeros, as in torch.

    query, key, value: (..., heads, length, features). Fewer key heads are shared by several query heads each.
    mask: bool (True: may attend) or floats that are added to the scores; broadcast to (..., queries, keys).
    scale: None for 1 / sqrt(features). causal: in place of a mask, query i attends to keys 0 ... i.
    empty_rows: False if the mask lets every query attend to some key.
    """
    node, seen = attention_node.form(query, key, value, mask, scale, causal), mask if empty_rows else None
    if node is None:
        output = _written_out(query, key, value, upto(query, key) if causal else mask, scale)
    elif mask is None or mask.dtype == torch.bool:
        output, seen = attention_node.attend(node, query, key, value, mask, scale, causal), None
    else:  # the Attention node treats the lowest float as -inf
        above = mask.clamp(min=torch.finfo(mask.dtype).min / 2)
        output = attention_node.attend(node, query, key, value, above, scale, causal)
    return output if seen is None else _seen(output, seen)


def _written_out(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: Any) -> Tensor:
    shared = _shared(query, key)
    # The patterns below are written for four dimensions; other ranks are rare, and get copies of the keys.
    if shared and query.dim() != 4:
        key, value, shared = repeat_heads(key, query.shape[-3]), repeat_heads(value, query.shape[-3]), None
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    # Before the product: queries are fewer numbers than scores, where the sequence is longer than the features.
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
    """(query heads, key heads) if keys are shared, else None."""
    if query.dim() < 3:
        return None
    heads, shared = numbers([query.shape[-3], key.shape[-3]])
    # One key head needs no rearrangement: MatMul broadcasts it without a copy.
    return None if shared == heads or shared == 1 else (heads, shared)


def _rearranged(x: Tensor, pattern: str, **given: int) -> Tensor:
    return rearrange(x, plan_axes(pattern, "rearrange", tuple(given), x.dim()), list(given.values()))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return scores + mask
    # At most float32's: on its way into a graph a number of Python passes through float32, and would be -inf.
    least = max(torch.finfo(scores.dtype).min, torch.finfo(torch.float32).min)
    lowest = torch.full((), least, dtype=scores.dtype, device=scores.device)
    if mask.dim() == scores.dim() and numbers(mask.shape[-3:-2]) != [1]:
        # The mask is as large as the scores: one Where, not a Where for the mask and an Add.
        return torch.where(mask, scores, lowest)
    return scores + torch.where(mask, torch.zeros_like(lowest), lowest)


def _seen(output: Tensor, mask: Tensor) -> Tensor:
    """`output` with zeros for queries that may attend to no key. The exported softmax gives the mean of all, or NaN."""
    if mask.dtype == torch.bool:  # the rows are finite, and a product is faster than Where
        return output * mask.to(output.dtype).amax(-1, keepdim=True)
    return torch.where(mask.amax(-1, keepdim=True) > -math.inf, output, torch.zeros((), dtype=output.dtype))


def upto(query: Tensor, key: Tensor) -> Tensor:
    """The causal mask, bool (queries, keys): True for keys up to the query's own position."""
    rows = torch.arange(query.shape[-2], device=query.device)
    return rows[:, None] >= torch.arange(key.shape[-2], device=query.device)


def repeat_heads(x: Tensor, heads: int, axis: int = -3) -> Tensor:
    """`x` with each key or value head repeated for the query heads that share it. Head counts are static."""
    axis = axis % x.dim()
    times = heads // x.shape[axis]
    spread = [-1] * axis + [-1, times] + [-1] * (x.dim() - axis - 1)
    # expand copies nothing; flatten, which joins the repeated axis, does.
    return x.unsqueeze(axis + 1).expand(spread).flatten(axis, axis + 1)
