"""Tells a tensor of ones, made in the model for any size, from data: such a mask hides nothing.

Under trace the TorchScript graph under construction shows how a tensor was made (`symbolic_sizes.py`), under
torch.export its tracer (`producers.py`). If these move, no tensor is known to be of ones, and masks stay.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch.constants import written
from onnxpatch._torch.producers import operator_of, producer
from onnxpatch._torch.symbolic_sizes import traced_value

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
    while node is not None and operator_of(node) in _KEEPS and not written(node):
        node = node.args[0] if isinstance(node.args[0], torch.fx.Node) else None
    return node is not None and operator_of(node) in _MAKES and not written(node)


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
