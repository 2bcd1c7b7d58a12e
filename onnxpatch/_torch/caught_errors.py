"""Private torch APIs for models that catch errors of torch (`try: ... except RuntimeError:`).

- torch.jit.trace: `torch._C._get_tracing_state`, its setter, and `TracingState.graph`. The tracer sets its state aside
  during a call and does not restore it when the call raises; the process then dies of a null pointer (signal 11). If
  these move, a model that catches an error fails with AttributeError.
- torch.export: `get_proxy_mode`, its tracer's `graph`, `module_stack` and `call_module`. Nodes of a call that raised
  stay in the graph, and modules left by an exception stay on the stack. If these move, a model that catches an error is
  refused ("Unexpected key", or its own error), and so are branches that end in an exception.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.undone import undone


class TraceKept(TorchFunctionMode):
    """A mode in which torch.jit.trace goes on after a torch call raised and the model caught the error.

    What the call had recorded is removed. lost: the errors that would have ended the process.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[BaseException] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        state = torch._C._get_tracing_state()
        try:
            return function(*args, **(kwargs or {}))
        except BaseException as error:  # an interrupt passes through `finally` blocks, which may call torch too
            if state is not None and torch._C._get_tracing_state() is None:
                torch._C._set_tracing_state(state)  # type: ignore[attr-defined]
                _drop_unfinished(state.graph())
                self.lost.append(error)
            raise


def _drop_unfinished(graph: Any) -> None:
    """Remove the node of a call that raised: it has no outputs, and the tracer fails at it."""
    begun = graph.insertPoint().prev()
    if begun.kind().startswith("aten::") and begun.outputsSize() == 0:
        begun.destroy()


class ExportKept(TorchFunctionMode):
    """The same for torch.export, for calls of torch functions and of modules."""

    _tracer: Any
    _call_module: Any
    _outer: Any

    def __enter__(self) -> ExportKept:
        self._tracer = tracer = _proxy_tracer()
        self._outer = getattr(tracer, "__dict__", {}).get("call_module")
        if hasattr(tracer, "call_module") and hasattr(tracer, "module_stack"):
            self._call_module = tracer.call_module
            tracer.call_module = self._called
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        with undone(self._untie):
            super().__exit__(*raised)

    def _untie(self) -> None:
        if self._outer is not None:  # another one's, around this
            self._tracer.call_module = self._outer
        elif self._tracer is not None:
            # It was set on the instance: without it, the tracer's own method is found again.
            vars(self._tracer).pop("call_module", None)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        stack = self._tracer.module_stack
        before = len(stack)
        try:
            return self._call_module(*args, **kwargs)
        except Exception:
            # torch pops a module only where its call returns: later nodes would be filed under the module that failed.
            while len(stack) > before:
                stack.popitem()
            raise

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # Dynamo compiles a body of torch.cond, and this with it
            return function(*args, **(kwargs or {}))
        graph = getattr(self._tracer, "graph", None)
        before = None if graph is None else next(iter(reversed(graph.nodes)), None)
        try:
            return function(*args, **(kwargs or {}))
        except Exception:
            if graph is not None:
                # Backwards: fx erases a node only when no other uses it.
                for begun in list(itertools.takewhile(lambda node: node is not before, reversed(graph.nodes))):
                    graph.erase_node(begun)
            raise


def _proxy_tracer() -> Any:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return getattr(get_proxy_mode(), "tracer", None)
