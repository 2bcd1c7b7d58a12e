"""Attention that a model writes out, softmax(q k^T scale) v, as one node of a file.

The exported graph shows it whoever wrote it, and in whichever words: matmul, einsum, `@`, with a mask or without. From
opset 23 on the node is ONNX's Attention; with onnxruntime's operators it is MultiHeadAttention, at any opset, but for
attention with a mask from opset 23 on, where Attention is faster. Attention whose scores or weights are read by
anything else is left.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.attention_masks import Addends, Mask, fits, unmasked
from onnxpatch.onnxfile.unread import drop_unread, edited
from onnxpatch.onnxfile.use_def import Size, UseDef, permutation
from onnxpatch.settings import Operators

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET = 23  # of Attention
_SOFTMAX = 13  # from here on it is over one axis
_MOVED = [0, 2, 1, 3]  # heads before the length, or back
_TURNED, _MOVED_AND_TURNED = [0, 1, 3, 2], [0, 2, 3, 1]  # keys as a product wants them


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
    mask: Mask | None


def name_attention(file: str | os.PathLike[str], operators: Operators) -> int:
    """Change a file in place; returns how many attentions became one node."""
    changed = 0
    with edited(file) as proto:
        opset = next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), 0)
        if opset < (_SOFTMAX if operators == "onnxruntime" else OPSET):
            return 0
        graph = UseDef(proto)
        addends = Addends(proto, graph)
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
    if mask is not None and not fits(graph, mask, (batch, heads, length, key[1][1])):
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


def _replace(proto: ModelProto, written: _Written, operators: Operators, addends: Addends) -> None:
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
