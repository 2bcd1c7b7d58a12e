"""Attention that a model writes out, softmax(q k^T scale) v, as one node of a file.

The exported graph shows it whoever wrote it, and in whichever words: matmul, einsum, `@`, with a mask or without. From
opset 23 on the node is ONNX's Attention; with onnxruntime's operators it is MultiHeadAttention, at any opset, but for
attention with a mask from opset 23 on, where Attention is faster. Attention whose scores or weights are read by
anything else is left.

A mask becomes numbers that one node adds to its scores:

    scores.masked_fill(mask, -3.4e38)               Where(mask, lowest, scores)
    scores + where(mask, 0, -3.4e38)                Add(scores, Where(mask, 0, lowest))

A query that may see no key gets the mean of all values from both, as from a number that is added if that is large and
finite: onnxruntime's Attention counts the lowest float as no key at all, and gives zeros. So half of it is added. A
mask with -inf, which gives NaN there, and one of unknown numbers are left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.editing import Size, UseDef, drop_unread, edited, permutation, stored_once
from onnxpatch.onnxfile.graph import opset_of
from onnxpatch.settings import Operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_LOWEST = -1.7e38  # half of the lowest float32
_OUTSHINES = -1e4  # a number from here on down leaves no weight, whatever the other scores are
OPSET = 23  # of Attention
_SOFTMAX = 13  # from here on it is over one axis
_MOVED = [0, 2, 1, 3]  # heads before the length, or back
_TURNED, _MOVED_AND_TURNED = [0, 1, 3, 2], [0, 2, 3, 1]  # keys as a product wants them


@dataclass(frozen=True)
class _Mask:
    """which: the bool value that chooses. hidden: whether it is True at keys that are not seen. added: there."""

    which: str
    hidden: bool
    added: float


def unmasked(graph: UseDef, name: str) -> tuple[str, str, _Mask | None] | None:
    """(the scores before the mask, the operator that reads them, the mask) for what a softmax is taken of.

    The mask is None where there is none. None in place of all: a mask of another kind.
    """
    added, chosen = graph.maker(name, "Add"), graph.maker(name, "Where")
    if added is None and chosen is None:
        return name, "Softmax", None
    if graph.only_user(name, "Softmax") is None:
        return None
    if chosen is not None:
        return _filled(graph, chosen)
    return _added(graph, added) if added is not None else None


def _filled(graph: UseDef, chosen: NodeProto) -> tuple[str, str, _Mask | None] | None:
    """Scores in whose place a low number is chosen."""
    for place in (1, 2):
        fill = graph.scalar(chosen.input[place])
        if fill is not None and -float("inf") < fill <= _OUTSHINES:
            return chosen.input[3 - place], "Where", _Mask(chosen.input[0], place == 1, _LOWEST)
    return None


def _added(graph: UseDef, added: NodeProto) -> tuple[str, str, _Mask | None] | None:
    """Scores to which 0 is added, or a low number."""
    for place in (0, 1):
        made = graph.maker(added.input[place], "Where")
        numbers = [graph.scalar(one) for one in made.input[1:]] if made is not None else []
        if made is not None and 0.0 in numbers and None not in numbers:
            low = min(number for number in numbers if number is not None)
            if -float("inf") < low < 0:
                # The first number of Where is the one for True.
                return added.input[1 - place], "Add", _Mask(made.input[0], numbers[0] != 0, max(low, _LOWEST))
    return None


def is_spread_over(graph: UseDef, mask: _Mask, scores: Sequence[Size]) -> bool:
    """Whether the mask is spread over scores of these sizes, and does not make them larger."""
    sizes = graph.shape(mask.which)
    if not 0 < len(sizes) <= len(scores):
        return False
    pairs = zip(reversed(sizes), reversed(scores), strict=False)
    return all(size == 1 or (size is not None and size == whole) for size, whole in pairs)


class _Addends:
    """Writes what masks add, once for all attentions that share a mask."""

    def __init__(self, proto: ModelProto, graph: UseDef) -> None:
        self._proto, self._graph = proto, graph
        self._made: dict[tuple[object, ...], str] = {}

    def of(self, mask: _Mask, query: str, key: str, before: NodeProto) -> str:
        """The name of (batch or 1, heads or 1, queries, keys) in float32, written before the node `before`.

        query, key: values of three dimensions, whose second are the lengths.
        """
        lengths = (self._graph.shape(query)[1], self._graph.shape(key)[1])
        named = (length or name for length, name in zip(lengths, (query, key), strict=True))
        known = (mask, *named)
        if known not in self._made:
            self._made[known] = self._write(mask, query, key, before, lengths)
        return self._made[known]

    def _write(self, mask: _Mask, query: str, key: str, before: NodeProto, lengths: tuple[Size, Size]) -> str:
        import onnx

        stem = f"onnxpatch_mask_{len(self._made)}"
        zero, low = (stored_once(self._proto, f"onnxpatch_number_{value}", [value]) for value in (0.0, mask.added))
        chosen = (low, zero) if mask.hidden else (zero, low)
        nodes = [onnx.helper.make_node("Where", [mask.which, *chosen], [f"{stem}_added"], f"{stem}_added")]
        sizes = self._graph.shape(mask.which)
        # The operators spread a mask over batch and heads by themselves, but not over queries and keys.
        if len(sizes) != 4 or tuple(sizes[2:]) != lengths:
            ones = f"{stem}_ones"
            self._proto.graph.initializer.append(onnx.helper.make_tensor(ones, onnx.TensorProto.INT64, [2], [1, 1]))
            for part, name in (("queries", query), ("keys", key)):
                nodes.append(onnx.helper.make_node("Shape", [name], [f"{stem}_{part}"], start=1, end=2))
            parts = [ones, f"{stem}_queries", f"{stem}_keys"]
            nodes.append(onnx.helper.make_node("Concat", parts, [f"{stem}_sizes"], axis=0))
            nodes.append(onnx.helper.make_node("Expand", [f"{stem}_added", f"{stem}_sizes"], [f"{stem}_whole"]))
        # Nodes of a file are in an order in which every input is made before.
        place = next(i for i, node in enumerate(self._proto.graph.node) if node.output == before.output)
        # Each is put at the same place, so that the last one inserted comes first.
        for node in reversed(nodes):
            node.name = node.output[0]
            node.metadata_props.extend(before.metadata_props)
            self._proto.graph.node.insert(place, node)
        return nodes[-1].output[0]


@dataclass(frozen=True)
class _Written:
    """One attention: the names of query, key and value as (batch, length, heads * features), and what is made of them.

    heads: their number. scale: of the scores. last: the node that gives (batch, length, heads * features) again.
    mask: what is added to the scores, or None.
    """

    given: tuple[str, str, str]
    heads: int
    scale: float
    last: NodeProto
    mask: _Mask | None


def name_attention(file: str | os.PathLike[str], operators: Operators) -> int:
    """Change a file in place; returns how many attentions became one node."""
    changed = 0
    with edited(file) as proto:
        opset = opset_of(proto)
        if opset < (_SOFTMAX if operators == "onnxruntime" else OPSET):
            return 0
        graph = UseDef(proto)
        addends = _Addends(proto, graph)
        # A list: nodes are added and changed on the way.
        for node in list(proto.graph.node):
            written = _written(graph, node) if node.op_type == "Softmax" else None
            if written is not None:
                _replace(proto, written, operators if opset < OPSET or written.mask is None else "portable", addends)
                changed += 1
        if changed:
            drop_unread(proto.graph)
    return changed


def _written(graph: UseDef, softmax: NodeProto) -> _Written | None:
    """The attention around a softmax, or None where this is another use of it, or anything else reads its parts."""
    axis = next((one.i for one in softmax.attribute if one.name == "axis"), -1)
    product, before = graph.only_user(softmax.output[0], "MatMul"), unmasked(graph, softmax.input[0])
    if axis not in (-1, 3) or product is None or product.input[0] != softmax.output[0] or before is None:
        return None
    *unscaled, mask = before
    scores, scale = _unscaled(graph, *unscaled)
    if scores is None:
        return None
    given, times = _unscaled_query(graph, scores.input[0])
    query, key = _split(graph, given), _split_key(graph, scores.input[1])
    value = _split(graph, product.input[1])
    if query is None or key is None or value is None:
        return None
    batch, length, heads, _ = query[1]
    # The number of heads is an attribute of the node, so it must be the same for all three, and a number.
    if not isinstance(heads, int) or not all((sizes[0], sizes[2]) == (batch, heads) for _, sizes in (key, value)):
        return None
    last = _joined(graph, product, _width(value[1]))
    if last is None:
        return None
    if mask is not None and not is_spread_over(graph, mask, (batch, heads, length, key[1][1])):
        return None
    return _Written((query[0], key[0], value[0]), heads, scale * times, last, mask)


def _joined(graph: UseDef, product: NodeProto, width: int) -> NodeProto | None:
    """The Reshape that joins the heads again behind the product with the values, or None."""
    moved = graph.only_user(product.output[0], "Transpose")
    if moved is None or permutation(moved) != _MOVED:
        return None
    last = graph.only_user(moved.output[0], "Reshape")
    joined = graph.shape(last.output[0]) if last is not None else []
    return last if len(joined) == 3 and joined[2] == width else None


def _unscaled(graph: UseDef, name: str, reader: str) -> tuple[NodeProto | None, float]:
    """The product that makes the scores, and the number that they are multiplied by before `reader` reads them."""
    for op in ("Mul", "Div"):
        node = graph.maker(name, op)
        # The scores must be read by the softmax or the mask alone, since the node does not give them out.
        if node is not None and graph.only_user(name, reader) is not None:
            for place in (0, 1) if op == "Mul" else (1,):
                number = graph.scalar(node.input[place])
                made = graph.maker(node.input[1 - place], "MatMul")
                if number is not None and made is not None and graph.only_user(made.output[0], op) is not None:
                    return made, number if op == "Mul" else 1 / number
    made = graph.maker(name, "MatMul")
    return (made if made is not None and graph.only_user(name, reader) is not None else None), 1.0


def _unscaled_query(graph: UseDef, name: str) -> tuple[str, float]:
    """The query before it is multiplied by a number, and the number."""
    node = graph.maker(name, "Mul")
    if node is not None and graph.only_user(name, "MatMul") is not None:
        for place in (0, 1):
            number = graph.scalar(node.input[place])
            if number is not None:
                return node.input[1 - place], number
    return name, 1.0


def _split(graph: UseDef, name: str, order: list[int] = _MOVED) -> tuple[str, list[Size]] | None:
    """(the value that heads were split from and moved, its sizes as batch, length, heads, features), or None."""
    moved = graph.maker(name, "Transpose")
    split = graph.maker(moved.input[0], "Reshape") if moved is not None and permutation(moved) == order else None
    if split is None:
        return None
    whole, parts = graph.shape(split.input[0]), graph.shape(split.output[0])
    fits = len(whole) == 3 and len(parts) == 4 and whole[:2] == parts[:2] and None not in parts
    return (split.input[0], parts) if fits and whole[2] == _width(parts) and graph.is_float32(name) else None


def _split_key(graph: UseDef, name: str) -> tuple[str, list[Size]] | None:
    turned = graph.maker(name, "Transpose")
    if turned is not None and permutation(turned) == _TURNED:
        return _split(graph, turned.input[0])
    return _split(graph, name, _MOVED_AND_TURNED)


def _width(parts: list[Size]) -> int:
    """Heads times features; -1 where either is not a number."""
    return parts[2] * parts[3] if isinstance(parts[2], int) and isinstance(parts[3], int) else -1


def _replace(proto: ModelProto, written: _Written, operators: Operators, addends: _Addends) -> None:
    import onnx

    last = written.last
    if operators == "onnxruntime":
        op, domain, counts = "MultiHeadAttention", "com.microsoft", {"num_heads": written.heads}
        if all(one.domain != "com.microsoft" for one in proto.opset_import):
            proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    else:
        op, domain, counts = "Attention", "", {"q_num_heads": written.heads, "kv_num_heads": written.heads}
    # Always given: left out, it is 1 / sqrt(features), whatever the model multiplied by.
    made: dict[str, Any] = {"scale": written.scale, **counts}
    given = list(written.given)
    if written.mask is not None:
        added = addends.of(written.mask, written.given[0], written.given[1], last)
        # MultiHeadAttention has a bias and a mask of padding in between.
        given += ["", "", added] if operators == "onnxruntime" else [added]
    node = onnx.helper.make_node(op, given, last.output, last.name, domain=domain, **made)
    node.metadata_props.extend(last.metadata_props)
    # In the place of the last node: all that it reads is computed before it.
    last.CopyFrom(node)
