"""Layer and RMS normalization that a model writes out, with the sum before it, as a runtime has one kernel for.

    (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias     LayerNormalization
    x * rsqrt(mean(x^2) + eps) * weight                                   RMSNormalization from opset 23 on

The exported graph shows it whoever wrote it: with a division or a reciprocal, with the mean taken once or twice, with
or without weight and bias. onnxruntime recognizes a few of these forms by itself. Below opset 23 an RMS normalization
is written in the one that it does. A normalization whose parts are read by anything else is left, and so is one over
other axes than the last, or in half precision, where the order of rounding counts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.editing import UseDef, drop_unread, edited, stored_once
from onnxpatch.onnxfile.graph import opset_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_LAYER, _RMS = 17, 23  # the first opsets with LayerNormalization and RMSNormalization


@dataclass
class _Written:
    """One normalization. x: what is normalized. eps: inside the root. made: its nodes, in order, `last` apart.

    centred: whether the mean is subtracted. quotient: the node that divides. root: the value that it divides by.
    """

    x: str
    eps: float
    centred: bool
    root: str
    square: NodeProto
    quotient: NodeProto
    made: list[NodeProto]
    last: NodeProto
    weight: str = ""
    bias: str = ""


def name_norms(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many normalizations were written anew."""
    changed = 0
    with edited(file) as proto:
        opset, graph = opset_of(proto), UseDef(proto)
        # A list: nodes change their operators on the way.
        for node in list(proto.graph.node) if opset >= _LAYER else ():
            written = FOUND_BY[node.op_type](graph, node) if node.op_type in FOUND_BY else None
            if written is not None and _replaced(proto, graph, written, opset):
                changed += 1
        if changed:
            drop_unread(proto.graph)
    return changed


def _written(graph: UseDef, root: NodeProto) -> _Written | None:
    """The normalization around a square root, or None where it is another use of one."""
    added = graph.maker(root.input[0], "Add")
    mean, eps = _plus_number(graph, added) if added is not None else (None, None)
    square = _square(graph, mean.input[0]) if mean is not None else None
    divided = _divided(graph, root)
    if added is None or mean is None or square is None or eps is None or divided is None:
        return None
    top, quotient, between = divided
    x, centring = _centred(graph, square.input[0])
    if x is not None:
        again, others = _centred(graph, top)
        if again != x:
            return None
        centring += [node for node in others if node not in centring]
    elif top != square.input[0]:
        return None
    made = [*centring, square, mean, added, root, *between]
    found = _Written(x or top, eps, x is not None, root.output[0], square, quotient, made, quotient)
    _take_weight_and_bias(graph, found)
    fits = graph.read_within([*found.made, found.last])
    return found if fits and graph.is_float32(found.x) else None


def _of_centred(graph: UseDef, node: NodeProto) -> _Written | None:
    """The layer norm that an RMS normalization of x - mean(x) is: the dynamo exporter writes it so from opset 23 on."""
    x, centring = _centred(graph, node.input[0])
    given = {one.name: one for one in node.attribute}
    if x is None or "axis" not in given or given["axis"].i != -1 or not graph.is_float32(x):
        return None
    # ONNX's default.
    eps = given["epsilon"].f if "epsilon" in given else 1e-5
    found = _Written(x, eps, True, "", node, node, centring, node, weight=node.input[1])
    _take_weight_and_bias(graph, found)
    return found if graph.read_within([*found.made, found.last]) else None


FOUND_BY = {"Sqrt": _written, "RMSNormalization": _of_centred}


def _plus_number(graph: UseDef, added: NodeProto) -> tuple[NodeProto | None, float | None]:
    """(the mean over the last axis, the number that is added to it)"""
    for place in (0, 1):
        number, mean = graph.scalar(added.input[place]), graph.maker(added.input[1 - place], "ReduceMean")
        if number is not None and mean is not None and _over_last_axis(graph, mean):
            return mean, number
    return None, None


def _over_last_axis(graph: UseDef, mean: NodeProto) -> bool:
    given = {one.name: one for one in mean.attribute}
    if "keepdims" in given and given["keepdims"].i != 1:
        return False
    axes = list(given["axes"].ints) if "axes" in given else None
    if axes is None:
        axes = graph.numbers(mean.input[1]) if len(mean.input) > 1 else None
    return axes == [-1] or (axes is not None and axes == [len(graph.shape(mean.input[0])) - 1])


def _square(graph: UseDef, name: str) -> NodeProto | None:
    """The node that squares a value."""
    power, product = graph.maker(name, "Pow"), graph.maker(name, "Mul")
    if power is not None and graph.scalar(power.input[1]) == 2:
        return power
    return product if product is not None and product.input[0] == product.input[1] else None


def _centred(graph: UseDef, name: str) -> tuple[str | None, list[NodeProto]]:
    """(x, the nodes) where a value is x - mean(x) over the last axis; None where it is not."""
    less = graph.maker(name, "Sub")
    mean = graph.maker(less.input[1], "ReduceMean") if less is not None else None
    if less is None or mean is None or mean.input[0] != less.input[0] or not _over_last_axis(graph, mean):
        return None, []
    return less.input[0], [mean, less]


def _divided(graph: UseDef, root: NodeProto) -> tuple[str, NodeProto, list[NodeProto]] | None:
    """(what is divided by the root, the node that does, the nodes between): by Div, or by the reciprocal and Mul."""
    name = root.output[0]
    division = graph.only_user(name, "Div")
    reciprocal = graph.only_user(name, "Reciprocal")
    if division is not None and division.input[1] == name:
        # 1 / root is a reciprocal, which a product follows.
        if graph.scalar(division.input[0]) != 1:
            return division.input[0], division, []
        reciprocal = division
    product = graph.only_user(reciprocal.output[0], "Mul") if reciprocal is not None else None
    if reciprocal is None or product is None:
        return None
    return next((one for one in product.input if one != reciprocal.output[0]), ""), product, [reciprocal]


def _take_weight_and_bias(graph: UseDef, found: _Written) -> None:
    """Add the product with a weight and the sum with a bias, each a vector of the last size, where they follow."""
    width = graph.shape(found.x)[-1:]
    for op in ([] if found.weight else ["Mul"]) + (["Add"] if found.centred else []):
        node = graph.only_user(found.last.output[0], op)
        other = next((one for one in node.input if one != found.last.output[0]), "") if node is not None else ""
        if node is None or not width or graph.shape(other) != width or not isinstance(width[0], int):
            if op == "Mul":
                continue
            return
        if op == "Mul":
            found.weight = other
        else:
            found.bias = other
        found.made.append(found.last)
        found.last = node


def _replaced(proto: ModelProto, graph: UseDef, written: _Written, opset: int) -> bool:
    """Write the normalization as a node, or in the form that is recognized; whether that is another one than it had."""
    import onnx

    if not written.centred and opset < _RMS:
        return _as_recognized(proto, written)
    weight = written.weight or _ones(proto, graph, written)
    if not weight:
        return False
    op = "LayerNormalization" if written.centred else "RMSNormalization"
    given = [written.x, weight, *([written.bias] if written.bias else [])]
    last = written.last
    node = onnx.helper.make_node(op, given, last.output, last.name, axis=-1, epsilon=written.eps)
    node.metadata_props.extend(last.metadata_props)
    # In its place, under its outputs: what reads them is left as it is.
    last.CopyFrom(node)
    return True


def _ones(proto: ModelProto, graph: UseDef, written: _Written) -> str:
    """The name of a weight of ones; empty where the last size is not a number."""
    width = next(iter(graph.shape(written.x)[-1:]), None)
    return stored_once(proto, f"onnxpatch_ones_{width}", [1.0] * width, [width]) if isinstance(width, int) else ""


def _as_recognized(proto: ModelProto, written: _Written) -> bool:
    """x / sqrt(mean(x^2) + eps) * weight: the form of RMS normalization that onnxruntime looks for."""
    if not written.weight or (written.square.op_type == "Pow" and written.quotient.op_type == "Div"):
        return False
    if written.square.op_type != "Pow":
        written.square.op_type = "Pow"
        written.square.input[1] = stored_once(proto, "onnxpatch_two", [2.0])
    if written.quotient.op_type != "Div":
        written.quotient.op_type = "Div"
        del written.quotient.input[:]
        written.quotient.input.extend([written.x, written.root])
    return True


def sum_residuals(file: str | os.PathLike[str]) -> int:
    """Change a file in place; returns how many additions of two computed values became Sum."""
    changed = 0
    with edited(file) as proto:
        stored = {weight.name for weight in proto.graph.initializer}
        made = {name: node for node in proto.graph.node for name in node.output}
        for node in proto.graph.node:
            if node.op_type != "LayerNormalization" or node.input[0] not in made:
                continue
            added = made[node.input[0]]
            # Not the addition of a bias: that one is fused with the product before it, as Add only.
            if added.op_type == "Add" and added.domain == "" and not stored.intersection(added.input):
                added.op_type = "Sum"
                changed += 1
    return changed
