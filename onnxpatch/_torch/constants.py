"""Finds the value of a tensor that is computed from parameters only, while an exporter runs.

Under trace the tensors have values; they are read while recording is paused. torch.export computes on FakeTensors
without data, but records how each was made (`torch.fx.experimental.proxy_tensor.get_proxy_mode` and `get_proxy_slot`):
these operators are run again on the parameters, outside torch's dispatch modes
(`torch.utils._python_dispatch._disable_current_modes`). If one of these moves, and outside torch.export, no producer
and no value is known, and the tensor is computed in the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from onnxpatch._torch import exporting
from onnxpatch._torch.function_modes import unseen
from onnxpatch._torch.trace_state import tracing_paused


class _UnknownError(Exception):
    """The value depends on an input of the model, or on chance."""


def constant(tensor: Tensor, model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The value of `tensor` if it depends on parameters and buffers only, else None. tensors: these, with values.

    Under trace it is the tensor itself, which has a value whatever it was computed from: ask only for what is stored.
    """
    if exporting() == "trace":
        return tensor
    try:
        tracer = running_tracer()
        if tracer is None:
            return None
        with _no_modes(), torch.no_grad():
            return _replayed(tensor, model, tensors, tracer)
    except (_UnknownError, ImportError, AttributeError, RuntimeError, TypeError):
        return None


def unrecorded(function: Callable[[], object]) -> Any:
    """The result of `function` on real tensors. Neither exporter records it."""
    with _no_modes() if exporting() != "trace" else tracing_paused(), torch.no_grad():
        result = function()
        return result.detach().clone() if isinstance(result, Tensor) else result


@contextlib.contextmanager
def _no_modes() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    # Two kinds of modes: those of torch functions (onnxpatch's own), and those of dispatch (torch.export's).
    with unseen(), _disable_current_modes():
        yield


def _replayed(tensor: Tensor, model: torch.nn.Module, tensors: Mapping[str, Tensor], tracer: object) -> Tensor:
    nodes: dict[Any, Any] = {}
    # While torch.export runs, these are FakeTensors that its tracer knows; the values are in `tensors`.
    for name, traced in (*model.named_parameters(), *model.named_buffers()):
        if name in tensors and (node := producer(traced, tracer)) is not None:
            nodes[node] = tensors[name]
    found = producer(tensor, tracer)
    if found is None:
        raise _UnknownError
    return _run(found, nodes, tracer)


def _writes(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _draws(target: object) -> bool:
    """Whether an operator draws random numbers."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _views(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and any(one.alias_info for one in target._schema.returns)


def is_mutated(node: Any) -> bool:
    """Whether the tensor or a view of it is written in place, so that its value is not its operator's result."""
    return any(_writes(user.target) or (_views(user.target) and is_mutated(user)) for user in node.users)


def _run(node: Any, known: dict[Any, Any], tracer: Any) -> Any:
    if is_mutated(node):
        raise _UnknownError
    if node in known:
        return known[node]
    if node.op == "get_attr":
        known[node] = getattr(tracer.root, node.target)
    elif node.op == "call_function" and not _draws(node.target):
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: _run(n, known, tracer))
        known[node] = node.target(*args, **kwargs)
    else:
        raise _UnknownError
    return known[node]


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
