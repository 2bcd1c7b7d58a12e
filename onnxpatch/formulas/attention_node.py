"""Attention as one node: ONNX's Attention (opset 23 or later) or onnxruntime's MultiHeadAttention.

Both are fastest on (batch, length, heads * features), the output of the projections. If the model has just transposed
that to (batch, heads, length, features), transposing it back costs nothing: the two cancel. Otherwise (a cache of keys)
Attention takes four dimensions.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from onnxpatch._torch import exporting
from onnxpatch._torch.producers import operator_of, producer
from onnxpatch.formulas.einops.axes import plan_axes
from onnxpatch.formulas.einops.rearrange import rearrange
from onnxpatch.formulas.nodes import Recipe, Value, Writer, numbers, run, target_operators, target_opset

Form = Literal["flat", "heads", "onnxruntime"]
# The first opset with Attention.
_OPSET = 23


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
    static = numbers((query.shape[1], query.shape[3], key.shape[1], value.shape[1], value.shape[3]))
    if not all(isinstance(size, int) for size in static) or not (scale is None or isinstance(scale, float)):
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


def attend(
    chosen: Form, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> Tensor:
    """softmax(query key^T scale + mask) value as the chosen node: (batch, heads, queries, features).

    For a query whose keys are all masked, onnxruntime's Attention gives zeros, as torch does. It counts the lowest
    float of the dtype as masked too; torch counts -inf only.
    """
    heads, features, shared = numbers((query.shape[1], query.shape[3], key.shape[1]))
    scale = 1 / math.sqrt(features) if scale is None else scale
    given = () if mask is None else (_whole(mask, query, key),)
    node = _node(chosen, value, heads, shared, scale, causal)
    if chosen == "heads":
        return run(node, query, key, value, *given)
    query, key, value = (
        rearrange(x, plan_axes("b h n d -> b n (h d)", "rearrange", (), 4)) for x in (query, key, value)
    )
    output = run(node, query, key, value, *given)
    return rearrange(output, plan_axes("b n (h d) -> b h n d", "rearrange", ("h",), 3), [heads])


def _node(chosen: Form, value: Tensor, heads: int, shared: int, scale: float, causal: bool) -> Recipe:
    width = numbers(value.shape[-1:])[0]  # of one head
    last = width if chosen == "heads" else width * heads

    def in_torch(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        if chosen != "heads":
            raise NotImplementedError("three dimensions are for dynamo, which computes nothing")
        call = (
            torch.ops.aten.scaled_dot_product_attention
        )  # not F.scaled_dot_product_attention: its stand-in calls this function
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

    return Recipe(in_torch, in_onnx)


def _moved_heads(x: Tensor) -> bool:
    """Whether `x` was just transposed from (batch, length, heads, features)."""
    node = producer(x)
    if operator_of(node) not in ("aten::transpose", "aten::permute") or node is None:
        # Written by `rearrange`. Under trace no producer is known, and the node takes four dimensions.
        return operator_of(node) == "onnx::Transpose"
    if operator_of(node) == "aten::permute":
        return [place % 4 for place in node.args[1]] == [0, 2, 1, 3]  # type: ignore[union-attr, operator]
    # The two axes of a transpose come in either order.
    return {place % 4 for place in node.args[1:3]} == {1, 2}  # type: ignore[operator]


def _whole(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask expanded to all queries and keys, in 2 or 4 dimensions, as the node needs it."""
    # The node reads two dimensions as (queries, keys) and four as (batch, heads, queries, keys); it does not take
    # others.
    mask = mask.unsqueeze(0) if mask.dim() in (1, 3) else mask
    rows: Any = query.shape[2] if numbers(mask.shape[-2:-1]) == [1] else -1
    columns: Any = key.shape[2] if numbers(mask.shape[-1:]) == [1] else -1
    return mask.expand([-1] * (mask.dim() - 2) + [rows, columns]) if (rows, columns) != (-1, -1) else mask
