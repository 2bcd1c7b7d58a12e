"""Keeps the value that a constant has in the graph of a running torch.jit.trace, before its tensor is written to.

torch.jit.trace takes a tensor that forward made of numbers (`torch.tensor([...])`), or that is a plain attribute, into
its graph without a copy. An operator that writes in place then changes the constant too, and the graph writes once
more. This file replaces nodes of the graph under construction (`torch._C._get_value_trace`). If that moves, constants
stay as torch.jit.trace has them.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch.symbolic_sizes import traced_value
from onnxpatch._torch.trace_state import tracing_paused

# What is written to their results is written to what they were given.
_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "alias",
            "detach",
            "lift_fresh",
            "to",
            "view",
            "view_as",
            "reshape",
            "flatten",
            "unflatten",
            "expand",
            "squeeze",
        ),
        *("unsqueeze", "transpose", "permute", "t", "select", "slice", "narrow", "diagonal", "contiguous"),
    )
)


def keep_constant(tensor: torch.Tensor) -> bool:
    """Give the constant that `tensor` is, or is a view of, a node of its own. Returns whether there is one."""
    value = traced_value(tensor) if torch.jit.is_tracing() else None  # type: ignore[attr-defined]
    if value is None:
        return False
    node: Any = value.node()
    while node.kind() in _VIEWS:
        node = next(node.inputs()).node()
    if node.kind() != "prim::Constant" or "value" not in node.attributeNames() or node.kindOf("value") != "t":
        return False
    with tracing_paused():
        held = node.t("value")
        if held.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
            return False
        node.t_("value", held.detach().clone())
    return True
