"""Tells how a tensor was made, under an exporter: from parameters only, from ones of any size, by a division by data.

`constant` has the value of one that was made from parameters. Under trace the tensors have values, which are read
while recording is paused. torch.export computes on FakeTensors without data, but records how each was made
(`torch.fx.experimental.proxy_tensor.get_proxy_mode` and `get_proxy_slot`): these operators are run again on the
parameters, outside torch's dispatch modes (`torch.utils._python_dispatch._disable_current_modes`). Under trace the
graph under construction shows how a tensor was made (`symbolic_sizes.py`). If one of these moves, nothing is known of a
tensor: it is computed in the graph, masks stay, and the patches that ask do nothing.

torch.jit.trace takes a tensor that forward made of numbers (`torch.tensor([...])`), or that is a plain attribute, into
its graph without a copy. An operator that writes in place then changes the constant too, and the graph writes once
more: `keep_constant` replaces its node (`torch._C._get_value_trace`). If that moves, constants stay as they are there.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from onnxpatch._torch import exporting
from onnxpatch._torch.fake_sizes import FakeWorld
from onnxpatch._torch.function_modes import tracing_paused, unseen
from onnxpatch._torch.symbolic_sizes import traced_value

# What is written to their results is written to what they were given.
_VIEWS = frozenset(f"aten::{name}" for name in (
    "alias", "detach", "lift_fresh", "to", "view", "view_as", "reshape", "flatten", "unflatten", "expand", "squeeze",
    "unsqueeze", "transpose", "permute", "t", "select", "slice", "narrow", "diagonal", "contiguous",
))  # fmt: skip
# Operators that divide, each with the place of what it divides by.
_DIVISIONS = {"div": 1, "true_divide": 1, "reciprocal": 0, "inverse": 0, "linalg_inv": 0, "linalg_inv_ex": 0}
# Layers with weights: what comes before them was bounded again, or is not finite for reasons of its own.
_LAYERS = ("_convolution", "convolution", "conv2d", "linear", "addmm", "layer_norm", "native_layer_norm")
_SIZES = ("size", "sym_size", "numel", "dim", "len")
_PLACES = ("topk", "sort", "argsort", "max", "min", "argmax", "argmin")  # along `dim`
_MOST = 400
Inputs = Callable[[Any], Iterable[Any]]
_MAKES = frozenset({"aten::ones", "aten::ones_like", "aten::new_ones"})
_KEEPS = frozenset({
    "aten::to", "aten::_to_copy", "aten::expand", "aten::view", "aten::reshape", "aten::slice", "aten::unsqueeze",
    "aten::contiguous", "aten::clone", "aten::alias", "aten::detach",
})  # fmt: skip


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


def as_operators(function: Callable[..., Any], values: Sequence[Tensor]) -> fx.GraphModule:
    """`function` of these tensors as a graph of operators, with torch.vmap and torch.func.grad carried out.

    Sizes other than 1 are symbols, which what the function asks of them does not fix. Tensors that it reads beside its
    arguments are attributes of the graph, the same objects.
    """
    program = _captured(function, values)
    if any(node.op == "call_function" and _writes(node.target) for node in program.graph.nodes):
        program = _captured(torch.func.functionalize(function), values)  # torch.func.jacrev fills a diagonal
    for node in program.graph.nodes:
        node.meta.clear()  # what the fake tensors were would be written into its code
    return program


def _captured(function: Callable[..., Any], values: Sequence[Tensor]) -> fx.GraphModule:
    from torch._dispatch.python import enable_python_dispatcher
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx

    if captures():  # torch.export's tensors have no values already
        sizes: Any = detect_fake_mode(values)
        with _no_modes(), torch.no_grad(), sizes.shape_env.suppress_guards(), enable_python_dispatcher():
            return make_fx(function, _allow_non_fake_inputs=True)(*values)
    world = FakeWorld()
    with tracing_paused(), torch.no_grad():
        larger = [frozenset(axis for axis, size in enumerate(value.shape) if size != 1) for value in values]
        fakes = [world.fake(one, axes, at) for at, (one, axes) in enumerate(zip(values, larger, strict=True))]
        with world.running():
            return make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*fakes)


def operator_name(target: Any) -> str | None:
    """The name of an operator of torch, without namespace and overload: "sum". None of another function or library."""
    namespace, _, name = target._schema.name.partition("::") if isinstance(target, torch._ops.OpOverload) else ("",) * 3
    return name if namespace in ("aten", "prims") else None


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
    return getattr(_proxy_mode(), "tracer", None)


def _proxy_mode() -> Any | None:
    try:
        from torch.fx.experimental.proxy_tensor import get_proxy_mode
    except ImportError:
        return None
    return get_proxy_mode()


def captures() -> bool:
    """Whether torch.export records this thread's calls, and not a trace of a part of them."""
    return bool(getattr(_proxy_mode(), "pre_dispatch", False))


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


def operator_of_node(node: fx.Node | None) -> str:
    """`aten::transpose` for a node of that operator; `onnx::Transpose` for a node of `formulas.nodes`; else ""."""
    if node is None or node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    name = "" if schema is None else str(schema.name)
    # `torch.onnx.ops.symbolic` gives the operator's name as its second argument.
    return f"onnx::{node.args[1]}" if name.startswith("onnx_symbolic::") else name


def operator_of(tensor: Tensor) -> str:
    """The operator whose result a tensor of the running export is (`aten::linalg_eig`); "" for none.

    Under dynamo only of one that makes it out of real tensors: of `operator_of_node`, any.
    """
    value = traced_value(tensor) if torch.jit.is_tracing() else None  # type: ignore[attr-defined]
    if value is not None:
        # A named tuple is taken apart behind the operator.
        kinds = [value.node().kind(), *(one.node().kind() for one in value.node().inputs())]
        return next((kind for kind in kinds if kind.startswith("aten::")), "")
    made: Any = producer(tensor)
    made = made.args[0] if made is not None and made.target is operator.getitem else made
    operands = [] if made is None else [node.meta.get("val") for node in made.all_input_nodes]
    real = bool(operands) and not any(isinstance(one, Tensor) and one.is_complex() for one in operands)
    return operator_of_node(made) if real else ""


def empty_at_first(x: Tensor) -> bool:
    """Whether a tensor is a slice of which an axis has length 0 at the least sizes, such as `x[:, : n // 8 * 8]`."""
    if operator_of(x) != "aten::slice":
        return False
    shape: Any = x.shape
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        from onnxpatch._torch.traced_sizes import symbolic_shape

        shape = symbolic_shape(x)
    try:
        from torch.utils._sympy.functions import FloorDiv

        nodes = [one.node for one in shape if not isinstance(one, int) and one.node.expr.has(FloorDiv)]
        formulas = [(one.shape_env.replace(one.expr), one.shape_env.var_to_range) for one in nodes]
        return any(form.subs({s: max(1, ranges[s].lower) for s in form.free_symbols}) <= 0 for form, ranges in formulas)
    # Formulas have moved, or divide by zero at the least sizes, which the model then refuses: it counts as filled.
    except (ImportError, AttributeError, KeyError, TypeError, ZeroDivisionError):
        return False


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


def all_ones(tensor: torch.Tensor) -> bool:
    """Whether an exporter runs and `tensor` is of ones at every size: made so, and only reshaped or cast since."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return _traced(tensor)
    node = producer(tensor)
    while node is not None and operator_of_node(node) in _KEEPS and not is_mutated(node):
        node = node.args[0] if isinstance(node.args[0], torch.fx.Node) else None
    return node is not None and operator_of_node(node) in _MAKES and not is_mutated(node)


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


def places_along(tensor: Tensor) -> object:
    """The size of the axis whose places `tensor` has, as topk's indices do, reshaped or not; None if not known.

    Under torch.export alone.
    """
    node: Any = producer(tensor)
    part: Any = 1
    while node is not None and (node.target is operator.getitem or f"aten::{_fx_name(node)}" in _VIEWS | _KEEPS):
        part = node.args[1] if node.target is operator.getitem else part
        node = node.args[0]
    if node is None or part != 1 or _fx_name(node) not in _PLACES:
        return None
    names = [one.name for one in node.target._schema.arguments]
    given = {"dim": -1, **dict(zip(names, node.args, strict=False)), **node.kwargs}
    shape = given["self"].meta["val"].shape
    return shape[given["dim"]] if isinstance(given["dim"], int) and len(shape) else None


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
