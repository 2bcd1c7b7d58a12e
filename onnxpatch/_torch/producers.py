"""Which operator made a tensor, asked while torch.export records the model.

`torch.fx.experimental.proxy_tensor.get_proxy_mode` and `get_proxy_slot` give the node that stands for a tensor; both
are private. Where they are gone, and in any other state than torch.export's, no producer is known.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx


def running_tracer() -> Any | None:
    """What records the model in this thread, or None."""
    try:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
    except ImportError:
        return None
    mode: Any = get_proxy_mode()
    return None if mode is None else mode.tracer


def producer(tensor: Tensor, tracer: Any | None = None) -> fx.Node | None:
    """The recorded node whose result `tensor` is, or None. tracer: the running one, for a caller who has paused it."""
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
    """`aten::transpose` for a node of that operator, `onnx::Transpose` for an ONNX node that a formula has written, an
    empty string for anything else."""
    if node is None or node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    name = "" if schema is None else str(schema.name)
    return f"onnx::{node.args[1]}" if name.startswith("onnx_symbolic::") else name
