"""Tells how a tensor was made: of ones at any size, so that such a mask hides nothing; or by a division by data.

Under trace the TorchScript graph under construction shows how a tensor was made (`symbolic_sizes.py`), under
torch.export its tracer (`constants.producer`). If these move, no tensor is known to be of ones or divided by data:
masks stay, and the patches that ask do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from onnxpatch._torch.constants import is_mutated, operator_of, producer
from onnxpatch._torch.symbolic_sizes import traced_value

# Operators that divide, each with the place of what it divides by.
_DIVISIONS = {"div": 1, "true_divide": 1, "reciprocal": 0, "inverse": 0, "linalg_inv": 0, "linalg_inv_ex": 0}
# Layers with weights: what comes before them was bounded again, or is not finite for reasons of its own.
_LAYERS = ("_convolution", "convolution", "conv2d", "linear", "addmm", "layer_norm", "native_layer_norm")
_SIZES = ("size", "sym_size", "numel", "dim", "len")
_MOST = 400
Inputs = Callable[[Any], Iterable[Any]]
_MAKES = frozenset({"aten::ones", "aten::ones_like", "aten::new_ones"})
_KEEPS = frozenset({
    "aten::to", "aten::_to_copy", "aten::expand", "aten::view", "aten::reshape", "aten::slice", "aten::unsqueeze",
    "aten::contiguous", "aten::clone", "aten::alias", "aten::detach",
})  # fmt: skip


def all_ones(tensor: torch.Tensor) -> bool:
    """Whether an exporter runs and `tensor` is of ones at every size: made so, and only reshaped or cast since."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return _traced(tensor)
    node = producer(tensor)
    while node is not None and operator_of(node) in _KEEPS and not is_mutated(node):
        node = node.args[0] if isinstance(node.args[0], torch.fx.Node) else None
    return node is not None and operator_of(node) in _MAKES and not is_mutated(node)


def _traced(tensor: torch.Tensor) -> bool:
    value = traced_value(tensor)
    while value is not None and value.node().kind() in _KEEPS and not _written_in_trace(value):
        value = next(iter(value.node().inputs()))
    return value is not None and value.node().kind() in _MAKES and not _written_in_trace(value)


def _written_in_trace(value: Any) -> bool:
    """Whether an operator whose name ends in `_` writes it, or a view of it."""
    users = [use.user for use in value.uses()]
    views = [user.output() for user in users if user.kind() in _KEEPS | {"aten::select"}]
    return any(user.kind().endswith("_") for user in users) or any(map(_written_in_trace, views))


def divided_by_data(tensor: torch.Tensor) -> bool:
    """Whether `tensor` was divided, since the last layer with weights, by a value that depends on the inputs."""
    value = traced_value(tensor) if torch.jit.is_tracing() else None  # type: ignore[attr-defined]
    if value is not None:
        return _divided(value.node(), _traced_name, _traced_inputs, _traced_inputs)
    node = producer(tensor)
    return node is not None and _divided(node, _fx_name, _fx_inputs, lambda one: one.args)


def _divided(node: object, name: Callable[[Any], str], inputs: Inputs, operands: Inputs) -> bool:
    for one in _before(node, name, inputs, _LAYERS):
        place = _DIVISIONS.get(name(one))
        divisor = None if place is None else list(operands(one))[place]
        # Under dynamo a divisor may be a Python number, which is no node of the graph.
        if type(divisor) is type(one) and not all(map(name, _before(divisor, name, inputs, ()))):
            return True
    return False


def _before(node: object, name: Callable[[Any], str], inputs: Inputs, ends: tuple[str, ...]) -> Iterable[object]:
    """A node and those that it was computed from, sizes and what lies behind `ends` aside."""
    pending, left = [node], _MOST
    seen: dict[int, Any] = {}  # by id, and kept: an id is given anew once its node is gone
    while pending and left:
        one, left = pending.pop(), left - 1
        if id(one) in seen or name(one) in _SIZES or name(one) in ends:
            continue
        seen[id(one)] = one
        yield one
        pending += inputs(one)


def _traced_name(node: Any) -> str:
    """The operator's name without its overload; "" for an input of the model."""
    return "" if node.kind() == "prim::Param" else node.kind().partition("::")[2].rstrip("_")


def _traced_inputs(node: Any) -> Iterable[object]:
    return [value.node() for value in node.inputs()]


def _fx_name(node: Any) -> str:
    if node.op != "call_function":
        return "" if node.op == "placeholder" else node.op
    return str(node.target).removeprefix("aten.").partition(".")[0].rstrip("_")


def _fx_inputs(node: Any) -> Iterable[object]:
    return node.all_input_nodes
