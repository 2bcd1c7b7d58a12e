"""Finds the operator that made a tensor, while torch.export records the model.

`torch.fx.experimental.proxy_tensor.get_proxy_mode` and `get_proxy_slot` return the fx node of a tensor; both are
private. If they move, and outside torch.export, no producer is known.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx


def running_tracer() -> Any | None:
    """torch.export's tracer in this thread, or None."""
    try:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
    except ImportError:
        return None
    mode: Any = get_proxy_mode()
    return None if mode is None else mode.tracer


def producer(tensor: Tensor, tracer: Any | None = None) -> fx.Node | None:
    """The fx node whose result is `tensor`, or None. tracer: from `running_tracer`, if it is paused now."""
    tracer = running_tracer() if tracer is None else tracer
    if tracer is None:
        return None
    try:
        from torch.fx.experimental.proxy_tensor import get_proxy_slot
    except ImportError:
        return None
    slot: Any = get_proxy_slot(tensor, tracer, None)
    return None if slot is None else slot.proxy.node


def operator_of(node: fx.Node | None) -> str:
    """`aten::transpose` for a node of that operator; `onnx::Transpose` for a node of `formulas.nodes`; else ""."""
    if node is None or node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    name = "" if schema is None else str(schema.name)
    # `torch.onnx.ops.symbolic` gives the operator's name as its second argument.
    return f"onnx::{node.args[1]}" if name.startswith("onnx_symbolic::") else name
