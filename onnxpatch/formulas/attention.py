"""Scaled dot product attention with a mask, causal or not, and with shared key heads (GQA).

From opset 23 on it is one node. Below, it is written in the nodes that are fastest in onnxruntime: keys are transposed
once; only the queries are scaled; a bool mask becomes a float mask before it meets the scores, so that all layers share
it; query heads that share keys are rows of one product, so that no key is copied.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from onnxpatch._torch import exporting
from onnxpatch._torch.tensor_origins import operator_of_node, producer
from onnxpatch.formulas.einops.axes import plan_axes
from onnxpatch.formulas.einops.rearrange import rearrange_axes
from onnxpatch.formulas.nodes import Recipe, Value, Writer, as_ints, run, target_operators, target_opset

Form = Literal["flat", "heads", "onnxruntime"]
# The first opset with Attention.
_OPSET = 23


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
    node, seen = form(query, key, value, mask, scale, causal), mask if empty_rows else None
    if node is None:
        output = _written_out(query, key, value, upto(query, key) if causal else mask, scale)
    elif mask is None or mask.dtype == torch.bool:
        output, seen = attended(node, query, key, value, mask, scale, causal), None
    else:  # the Attention node treats the lowest float as -inf
        above = mask.clamp(min=torch.finfo(mask.dtype).min / 2)
        output = attended(node, query, key, value, above, scale, causal)
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
    heads, shared = as_ints([query.shape[-3], key.shape[-3]])
    # One key head needs no rearrangement: MatMul broadcasts it without a copy.
    return None if shared == heads or shared == 1 else (heads, shared)


def _rearranged(x: Tensor, pattern: str, **given: int) -> Tensor:
    return rearrange_axes(x, plan_axes(pattern, "rearrange", tuple(given), x.dim()), list(given.values()))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return scores + mask
    # At most float32's: on its way into a graph a number of Python passes through float32, and would be -inf.
    least = max(torch.finfo(scores.dtype).min, torch.finfo(torch.float32).min)
    lowest = torch.full((), least, dtype=scores.dtype, device=scores.device)
    if mask.dim() == scores.dim() and as_ints(mask.shape[-3:-2]) != [1]:
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


def form(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Form | None:
    """The node to write for this call; None if opset, operators, dtype or shapes allow none.

    flat: Attention on (batch, length, heads * features). heads: Attention on four dimensions. onnxruntime:
    MultiHeadAttention, for calls without a mask and without shared heads.
    """
    if exporting() is None or not all(x.dim() == 4 for x in (query, key, value)):
        return None
    # Numbers of heads and features are attributes of the node, or sizes that its shape needs.
    static = as_ints((query.shape[1], query.shape[3], key.shape[1], value.shape[1], value.shape[3]))
    if not all(isinstance(size, int) for size in static) or not isinstance(scale, float | None):
        return None
    heads, _, shared, shared_too, _ = static
    # If only some were transposed, moving the others back would copy them, and four dimensions are faster.
    flat = all(map(_moved_heads, (query, key, value)))
    plain = mask is None and not causal and heads == shared == shared_too and query.dtype == torch.float32
    if target_operators() == "onnxruntime" and flat and plain:
        return "onnxruntime"
    # Other dtypes have no kernel in onnxruntime, or one that has not been compared with torch.
    if target_opset() < _OPSET or query.dtype not in (torch.float32, torch.float16) or shared != shared_too:
        return None
    return "flat" if flat else "heads"


def attended(
    chosen: Form, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    """softmax(query key^T scale + mask) value as the chosen node: (batch, heads, queries, features).

    For a query whose keys are all masked, onnxruntime's Attention gives zeros, as torch does. It counts the lowest
    float of the dtype as masked too; torch counts -inf only.
    """
    heads, features, shared = as_ints((query.shape[1], query.shape[3], key.shape[1]))
    scale = 1 / math.sqrt(features) if scale is None else scale
    given = () if mask is None else (_whole(mask, query, key),)
    node = _node(chosen, value, heads, shared, scale, causal)
    if chosen == "heads":
        return run(node, query, key, value, *given)
    query, key, value = (
        rearrange_axes(x, plan_axes("b h n d -> b n (h d)", "rearrange", (), 4)) for x in (query, key, value)
    )
    output = run(node, query, key, value, *given)
    return rearrange_axes(output, plan_axes("b n (h d) -> b h n d", "rearrange", ("h",), 3), [heads])


def _node(chosen: Form, value: Tensor, heads: int, shared: int, scale: float, causal: bool) -> Recipe:
    width = as_ints(value.shape[-1:])[0]  # of one head
    last = width if chosen == "heads" else width * heads

    def in_torch(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if chosen != "heads":
            raise NotImplementedError("three dimensions are for dynamo, which computes nothing")
        call = torch.ops.aten.scaled_dot_product_attention  # not torch's function, whose stand-in calls this one
        made: Tensor = call(query, key, value, mask, 0.0, causal, scale=scale, enable_gqa=heads != shared)
        return made

    def in_onnx(writer: Writer, query: Value, key: Value, value: Value, *mask: Value) -> Value:
        shape = [*writer.shape(query)[:-1], last]
        if chosen == "onnxruntime":
            name = "com.microsoft::MultiHeadAttention"
            return writer.node(name, query, key, value, shape=shape, num_heads=heads, scale=scale)
        # Four dimensions show the number of heads, three do not.
        counts = {} if chosen == "heads" else {"q_num_heads": heads, "kv_num_heads": shared}
        flag = {"is_causal": 1} if causal else {}
        return writer.node("Attention", query, key, value, *mask, shape=shape, scale=scale, **counts, **flag)

    return in_torch, in_onnx


def _moved_heads(x: Tensor) -> bool:
    """Whether `x` was just transposed from (batch, length, heads, features)."""
    node = producer(x)
    if operator_of_node(node) not in ("aten::transpose", "aten::permute") or node is None:
        # Written by `rearrange`. Under trace no producer is known, and the node takes four dimensions.
        return operator_of_node(node) == "onnx::Transpose"
    if operator_of_node(node) == "aten::permute":
        return [place % 4 for place in node.args[1]] == [0, 2, 1, 3]  # type: ignore[union-attr, operator]
    # The two axes of a transpose come in either order.
    return {place % 4 for place in node.args[1:3]} == {1, 2}  # type: ignore[operator]


def _whole(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask expanded to all queries and keys, in 2 or 4 dimensions, as the node needs it."""
    # The node reads two dimensions as (queries, keys) and four as (batch, heads, queries, keys); it does not take
    # others.
    mask = mask.unsqueeze(0) if mask.dim() in (1, 3) else mask
    rows: Any = query.shape[2] if as_ints(mask.shape[-2:-1]) == [1] else -1
    columns: Any = key.shape[2] if as_ints(mask.shape[-1:]) == [1] else -1
    return mask.expand([-1] * (mask.dim() - 2) + [rows, columns]) if (rows, columns) != (-1, -1) else mask
