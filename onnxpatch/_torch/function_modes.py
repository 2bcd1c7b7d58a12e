"""Function modes, and a running trace: which functions a mode sees, a pause of the trace, and modes in which an export
goes on where a model catches an error of torch (`try: ... except RuntimeError:`). By these APIs:

- `torch.overrides.get_overridable_functions` (public) says which functions a TorchFunctionMode sees.
- `torch._C.DisableTorchFunction` runs a block past every mode, as `torch.overrides` itself does. If it moves, patches
  of functions are refused.
- `_get_current_function_mode_stack`, `_pop_mode` and `_push_mode` of torch.overrides, and their likes of
  torch.utils._python_dispatch: the modes of this thread. An interrupt between a `with mode:` and the mode's own end
  leaves it active; where these have moved, it stays. So does a level of torch.vmap that an error in torch.export left
  (`torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth`, `get_dynamic_layer_stack_depth`).
- torch.jit.trace: `torch._C._get_tracing_state`, its setter, and `TracingState.graph`. The tracer sets its state aside
  during a call and does not restore it when the call raises; the process then dies of a null pointer (signal 11). If
  these move, a model that catches an error, stored constants, layer norm over a size read off its input, nodes that the
  kit writes, and branches fail with AttributeError under the trace exporter.
- `torch._C.OptionalType.ofTensor` gives a `prim::Constant` the type "no tensor", which the exporter writes as an
  omitted input. If it moves, patches that omit an input in the middle (Resize without regions, Clip without a bound)
  fail with AttributeError under the trace exporter; nothing else uses it.
- The graph that a symbolic function gets is a `GraphContext`: a dataclass with the `block` into which `op` writes, and
  a block is a side of an `If`. If they move, Fourier transforms of a dynamic length fail under the trace exporter.
- torch.export: `get_proxy_mode`, its tracer's `graph`, `module_stack` and `call_module`. Nodes of a call that raised
  stay in the graph, and modules left by an exception stay on the stack. If these move, a model that catches an error is
  refused ("Unexpected key", or its own error), and so are branches that end in an exception.
- torch has a function mode off while the mode handles a call, and runs the bodies of `torch.ops.higher_order.cond`,
  `scan` and `while_loop` meanwhile. In a body it refuses the constant that `torch.as_tensor(0.5)` makes ("Attempting to
  use FunctionalTensor on its own"); `torch.full` is right there. Used is the class `torch._ops.HigherOrderOperator`. If
  it moves, patches of functions do not act in the branches and loops that the kit writes under dynamo.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import pytree
from onnxpatch._torch.relied_on import gone_class
from onnxpatch.process import undone

try:
    _Disabled = torch._C.DisableTorchFunction
except AttributeError:
    _Disabled = gone_class("torch._C.DisableTorchFunction")
_HigherOrder = getattr(torch._ops, "HigherOrderOperator", ())
BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """A context in which torch calls are seen by no TorchFunctionMode."""
    # Not `with _Disabled():`, which stays in force for good where an interrupt comes at its end.
    disabled = _Disabled()
    with undone(lambda: disabled.__exit__(None, None, None)):
        disabled.__enter__()
        yield


def device_of(values: object) -> contextlib.AbstractContextManager[object]:
    """A context in which new tensors are on the device of the first of `values` that is not on the CPU, if one is."""
    with unseen():
        tensors = [one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]
        devices = (one.device for one in tensors if one.device.type not in ("cpu", "meta"))
        return next(devices, contextlib.nullcontext())  # a torch.device is such a context


@contextlib.contextmanager
def modes_kept() -> Iterator[None]:
    """After the block, deactivate the function modes, dispatch modes and levels of torch.vmap that it left active in
    this thread, and record gradients if they were recorded before it.

    The default device is a mode too: one that the block set stays, as it would in eager.
    """
    functions = _Stack(torch.overrides, "_get_current_function_mode_stack")
    operators = _Stack(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack")
    gradients = torch.is_grad_enabled()
    depth = getattr(torch._C._functorch, "get_dynamic_layer_stack_depth", lambda: 0)
    undo = getattr(torch._C._functorch, "pop_dynamic_layer_stack_and_undo_to_depth", lambda _: None)
    levels = depth()

    def put_back() -> None:
        if depth() > levels:
            undo(levels)
        if torch.is_grad_enabled() != gradients:  # torch.export writes each call of the setter into its graph
            torch.set_grad_enabled(gradients)

    with undone(put_back), undone(operators.put_back), undone(functions.put_back):
        yield


class _Stack:
    """The modes of one kind that were active in this thread when this was made."""

    def __init__(self, home: Any, modes: str) -> None:
        self._modes: Any = getattr(home, modes, None)
        self._pop: Any = getattr(home, "_pop_mode", None)
        self._push: Any = getattr(home, "_push_mode", None)
        self._before = self._active()

    def _active(self) -> list[Any]:
        return list(self._modes()) if self._modes and self._pop and self._push else []

    def put_back(self) -> None:
        """Deactivate all others."""
        active = self._active()
        kept = [mode for mode in active if mode in self._before or type(mode).__name__ == "DeviceContext"]
        if len(kept) == len(active):
            return
        for _ in active:
            self._pop()
        for mode in kept:
            self._push(mode)


@functools.cache
def _overridable() -> frozenset[Any]:
    functions = torch.overrides.get_overridable_functions()
    return frozenset(function for group in functions.values() for function in group)


@functools.lru_cache(maxsize=4096)
def torch_function_key(function: object) -> Any | None:
    """The function that a TorchFunctionMode gets when `function` is called; None if no mode sees the call."""
    if isinstance(function, types.GetSetDescriptorType | property):
        return function.__get__
    if isinstance(function, types.MethodWrapperType):  # of a property's setter: Tensor.data.__set__
        return function
    if isinstance(function, BUILTINS):
        return function if is_operator(function) else None
    # A function in C++ always asks the modes; one in Python does where torch has written that into it.
    return function if function in _overridable() else None


def is_operator(function: object) -> bool:
    """Whether a function in C or C++ is one of torch that takes tensors. The methods of torch.Size take none."""
    owner = function if getattr(function, "__module__", None) else getattr(function, "__objclass__", None)
    return owner is not torch.Size and str(getattr(owner, "__module__", "")).split(".")[0] == "torch"


def function_name(function: object) -> str:
    """The name of a torch function in torch; for a property (Tensor.mT), the property's."""
    name = getattr(function, "__name__", "")
    # A TorchFunctionMode gets a property as the bound __get__, or __set__, of its descriptor.
    bound = name in ("__get__", "__set__")
    return getattr(getattr(function, "__self__", None), "__name__", name) if bound else name


@contextlib.contextmanager
def trace_error_recovery() -> Iterator[list[BaseException]]:
    """A context in which torch.jit.trace goes on after a torch call raised and the model caught the error.

    What the call had recorded is removed. Yields the list of the errors that would have ended the process.
    """
    with _TraceErrorRecovery() as mode:
        yield mode.lost


class _TraceErrorRecovery(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.lost: list[BaseException] = []

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
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


def export_error_recovery() -> TorchFunctionMode:
    """The same for torch.export, for calls of torch functions and of modules."""
    return _ExportErrorRecovery()


class _ExportErrorRecovery(TorchFunctionMode):
    _tracer: Any
    _call_module: Any
    _outer: Any

    def __enter__(self) -> _ExportErrorRecovery:
        self._tracer = tracer = _proxy_tracer()
        self._outer = getattr(tracer, "__dict__", {}).get("call_module")
        if hasattr(tracer, "call_module") and hasattr(tracer, "module_stack"):
            self._call_module = tracer.call_module
            tracer.call_module = self._called
        super().__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        with undone(self._untie):
            super().__exit__(*raised)

    def _untie(self) -> None:
        if self._outer is not None:  # another one's, around this
            self._tracer.call_module = self._outer
        elif self._tracer is not None:
            # It was set on the instance: without it, the tracer's own method is found again.
            vars(self._tracer).pop("call_module", None)

    def _called(self, *args: object, **kwargs: object) -> object:
        stack = self._tracer.module_stack
        before = len(stack)
        try:
            return self._call_module(*args, **kwargs)
        except Exception:
            # torch pops a module only where its call returns: later nodes would be filed under the module that failed.
            while len(stack) > before:
                stack.popitem()
            raise

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # Dynamo compiles a body of torch.cond, and this with it
            return function(*args, **(kwargs or {}))
        graph = getattr(self._tracer, "graph", None)
        # Backwards: fx erases a node only when no other uses it.
        before = None if graph is None else next(iter(reversed(graph.nodes)), None)
        try:
            return function(*args, **(kwargs or {}))
        except Exception:
            if graph is not None:
                for begun in list(itertools.takewhile(lambda node: node is not before, reversed(graph.nodes))):
                    graph.erase_node(begun)
            raise


def _proxy_tracer() -> object:
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return getattr(get_proxy_mode(), "tracer", None)


def running_trace() -> object:
    """The trace that runs at the moment, the same object each time while somebody holds it; None where none runs."""
    return torch._C._get_tracing_state()


class _Parts(threading.local):
    depth = 0


_parts = _Parts()


@contextlib.contextmanager
def tracing_parts() -> Iterator[None]:
    """A context in which bodies of loops and sides of an `If` are traced, each by itself."""
    before = _parts.depth
    with undone(lambda: setattr(_parts, "depth", before)):
        _parts.depth = before + 1
        yield


def traces_a_part() -> bool:
    """Whether the running trace is one of a loop's body or of a side of an `If`, and not the export's."""
    return _parts.depth > 0


@contextlib.contextmanager
def trace_suspended() -> Iterator[None]:
    """A context in which torch.jit.trace records nothing. Another trace may run inside it."""
    state = torch._C._get_tracing_state()
    with undone(lambda: torch._C._set_tracing_state(state)):  # type: ignore[attr-defined]
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        yield


@contextlib.contextmanager
def tracing_paused() -> Iterator[None]:
    """As `trace_suspended`, and without torch function modes."""
    # The kit's own modes would take what runs inside for calls of the model.
    with trace_suspended(), unseen():
        yield


def absent_input(graph: Any) -> object:
    """A value of the graph for an optional input that is omitted.

    graph: the first argument of a symbolic function; its `op` adds a node.
    """
    none = graph.op("prim::Constant")
    none.setType(torch._C.OptionalType.ofTensor())
    return none


def if_node(graph: Any, condition: Any, sides: Sequence[Callable[[Any], Any]]) -> Any:
    """An If with one output. sides: called with the graph whose `op` writes into that side; each returns its value."""
    made = graph.op("If", condition)
    for side in sides:
        block = made.node().addBlock()
        block.registerOutput(side(dataclasses.replace(graph, block=block)))
    return made


# ------------------------------------------------------------------ bodies of an If or a loop
def bodies_seen_by(mode: TorchFunctionMode, function: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a call that a mode passes on, those that are bodies with the mode on while they run."""
    if not isinstance(function, _HigherOrder):
        return args

    def seen(body: Callable[..., object]) -> Callable[..., object]:
        def run(*operands: object) -> object:
            # Outside of `mode`, so that it is on where a stand-in runs.
            with _NumbersAsNodes(), mode:
                return body(*operands)

        return run

    return tuple(seen(one) if callable(one) and not isinstance(one, torch.nn.Module) else one for one in args)


class _NumbersAsNodes(TorchFunctionMode):
    """Makes tensors of Python numbers by torch.full."""

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor) and len(args) == 1 and _is_plain(args[0]):
            dtype = options.pop("dtype", None)
            made = _filled(args[0], **options)
            return made if dtype is None else made.to(dtype)
        return function(*args, **options)


def _is_plain(data: object) -> bool:
    if isinstance(data, list | tuple):
        return bool(data) and all(map(_is_plain, data))
    return isinstance(data, bool | int | float)


def _filled(data: Any, **options: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        return torch.stack([_filled(one, **options) for one in data])
    return torch.full((), data, **options)
