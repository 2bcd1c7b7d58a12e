"""Writes ONNX nodes directly into the graph that is being exported, with either exporter.

Exported torch code has nodes for every size that it reads. ONNX can do with fewer: a 0 in a Reshape target copies a
size, one Shape reads several. torch has no way to say this. So a `Recipe` has an operation twice:

    (lambda x, n: x.reshape(n, -1),          runs in eager, and gives shapes and dtypes
     lambda writer, x, n: writer.node(...))  makes the nodes of the exported graph
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.function_modes import absent_input, if_node, running_trace, traces_a_part, unseen
from onnxpatch.process import filtered
from onnxpatch.settings import Operators, in_force

# A torch.Tensor under dynamo, a value of the TorchScript graph under trace. Recipes pass them on; writers look inside.
Value: TypeAlias = object
_Own = Any  # the same, inside the writer that makes it
Sides = tuple[Callable[..., Value], Callable[..., Value]]


class Writer(Protocol):
    """Adds nodes of the default ONNX domain, or of the one in the name (`com.microsoft::MultiHeadAttention`).

    opset: in which the nodes must be valid. wants_inferred: a Reshape with a 0 also needs a -1.
    """

    opset: int
    wants_inferred: bool

    def node(self, op: str, *inputs: Value, like: Value = None, shape: Sequence[object], **attributes: object) -> Value:
        """Add a node with one output, of the dtype of `like` (default: the first input). A traced size may be None."""

    def ints(self, values: Sequence[int]) -> Value:
        """A constant int64 tensor with one dimension."""

    def floats(self, values: Sequence[float]) -> Value:
        """A constant float32 tensor with one dimension."""

    def scalar(self, value: float, dtype: torch.dtype) -> Value:
        """A 0-d constant."""

    def shape(self, value: Value) -> list[Any]:
        """The sizes of a value: ints, and for dynamic ones symbolic sizes (dynamo) or None (trace)."""

    def dtype(self, value: Value) -> torch.dtype:
        """The dtype of a value."""

    def cast(self, value: Value, dtype: torch.dtype, shape: Sequence[object]) -> Value:
        """The value in another dtype."""

    def number(self, length: object) -> Any:
        """A length given to the recipe: an int, a symbolic size, or None if it is known at run time only."""

    def length(self, length: object) -> Value:
        """A length given to the recipe as an int64 tensor of shape (1,)."""

    def either(self, number: Value, sides: Sides, *operands: object, shape: Sequence[object]) -> Value:
        """An If: the result of the first side where the int64 number, of shape (1,), is not 0; else of the second.

        Sides are called with a writer and the operands, values and sizes, the first of the result's dtype. They read
        no other value."""


Recipe = tuple[Callable[..., torch.Tensor], Callable[..., Value]]
"""One operation in two forms: (a function of a tensor and sizes, the same as nodes, which gets a writer, and tensor and
sizes as values of the graph)."""


def run(recipe: Recipe, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    """Write the recipe's nodes if an exporter runs that allows it; else run its torch code.

    x: a tensor of any dtype; nodes are written for real ones. more: sizes as 0-d int tensors, as under trace, and other
    tensors that the nodes read.
    """
    # Both are asked: torch.export and torch.jit.trace alone, without ONNX behind them, must see no ONNX nodes.
    how = exporting() if torch.onnx.is_in_onnx_export() else None
    # In a loop's body or a side of an `If`, the exporter would put the nodes of `_Recorded` outside of it.
    if x.is_complex() or how is None or traces_a_part():
        return recipe[0](x, *more)
    if how == "trace":
        return _as_one_call(recipe, running_trace(), x, *more)
    # torch < 2.8 has no torch.onnx.ops.symbolic, which writes a node under dynamo
    if not hasattr(torch.onnx, "ops"):
        return recipe[0](x, *more)
    made: _Own = recipe[1](_Dynamo(), x, *more)
    return placed(made, x)


def placed(made: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The result of an ONNX node where x is: torch takes it for one on the CPU."""
    return made if made.device == x.device else made.to(x.device)


def _as_one_call(recipe: Recipe, trace: object, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    """What a TorchFunctionMode sees of a recipe under trace, as of an operator of torch: the calls inside it sees not.

    With branches=True such a mode repeats the calls, on fake tensors and in a trace of their own for a side of an `If`.
    trace: the export's. Nodes are written there alone.
    """
    if torch.overrides.has_torch_function((x,)):
        found: torch.Tensor = torch.overrides.handle_torch_function(_as_one_call, (x,), recipe, trace, x, *more)
        return found
    if running_trace() is not trace:
        return recipe[0](x, *more)
    return _Recorded.apply(recipe, tuple(as_ints(more)), x, *more)


def target_opset() -> int:
    """The opset for the nodes of the running export; 18 if it is not known.

    The dynamo exporter writes opset 18 or later, and converts to a lower one afterwards.
    """
    asked = in_force().opset
    return 18 if asked is None else max(asked, 18) if exporting() == "dynamo" else asked


def target_operators() -> Operators:
    """`operators=` of the running export: whether onnxruntime's own operators are allowed."""
    return in_force().operators


def as_ints(sizes: Sequence[object]) -> list[Any]:
    """Sizes as ints: under trace, the tensors' values at the example. Anything else is returned as it is."""
    # With branches=True, a mode refuses int() of a dynamic size.
    with filtered("ignore", torch.jit.TracerWarning), unseen():  # type: ignore[attr-defined]
        return [int(size) if isinstance(size, torch.Tensor) and size.dim() == 0 else size for size in sizes]


class _Dynamo:
    wants_inferred = False

    def __init__(self) -> None:
        self.opset = target_opset()

    def node(self, op: str, *inputs: _Own, like: _Own = None, shape: Sequence[Any], **attributes: Any) -> _Own:
        dtype = (inputs[0] if like is None else like).dtype
        return torch.onnx.ops.symbolic(op, inputs, attributes, dtype=dtype, shape=shape)

    def ints(self, values: Sequence[int]) -> _Own:
        named: dict[str, Any] = {"value_ints": list(values)}
        return torch.onnx.ops.symbolic("Constant", (), named, dtype=torch.int64, shape=(len(values),))

    def floats(self, values: Sequence[float]) -> _Own:
        named: dict[str, Any] = {"value_floats": list(values)}
        return torch.onnx.ops.symbolic("Constant", (), named, dtype=torch.float32, shape=(len(values),))

    def scalar(self, value: float, dtype: torch.dtype) -> _Own:
        # ONNX's Constant takes a Python float as float32 only.
        made = torch.onnx.ops.symbolic("Constant", (), {"value_float": value}, dtype=torch.float32, shape=())
        return made if dtype == torch.float32 else made.to(dtype)

    def shape(self, value: _Own) -> list[Any]:
        return list(value.shape)

    def dtype(self, value: _Own) -> torch.dtype:
        return value.dtype

    def cast(self, value: _Own, dtype: torch.dtype, shape: Sequence[object]) -> _Own:
        return value.to(dtype)

    def number(self, length: object) -> Any:
        return length

    def length(self, length: Any) -> _Own:
        scalar = length if isinstance(length, torch.Tensor) else torch.scalar_tensor(length, dtype=torch.int64)
        return self.node("Reshape", scalar, self.ints([1]), shape=(1,))

    def either(self, number: _Own, sides: Sides, *operands: object, shape: Sequence[object]) -> _Own:
        then, other = ((lambda *given, side=side: (side(self, *given),)) for side in sides)
        return torch.ops.higher_order.cond(number.to(torch.bool), then, other, operands)[0]


class _Trace:
    # torch's shape inference fails with an internal error at a Reshape target with a 0 and no -1
    wants_inferred = True

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.opset: int = graph.opset

    def node(self, op: str, *inputs: _Own, like: _Own = None, shape: Sequence[Any], **attributes: Any) -> _Own:
        # The TorchScript graph takes the type of an attribute from the end of its name: axis_i, epsilon_f, mode_s.
        named = {f"{name}_{_kind(value)}": value for name, value in attributes.items()}
        inputs = tuple(absent_input(self._graph) if value is None else value for value in inputs)
        made = self._graph.op(op, *inputs, **named)
        source = inputs[0] if like is None else like
        # The exporter's own symbolics that read this value ask for its rank and sizes.
        return made.setType(source.type().with_sizes([size if isinstance(size, int) else None for size in shape]))

    def ints(self, values: Sequence[int]) -> _Own:
        return self._graph.op("Constant", value_t=torch.tensor(list(values), dtype=torch.int64))

    def floats(self, values: Sequence[float]) -> _Own:
        return self._graph.op("Constant", value_t=torch.tensor(list(values)))

    def scalar(self, value: float, dtype: torch.dtype) -> _Own:
        return self._graph.op("Constant", value_t=torch.tensor(value, dtype=dtype))

    def shape(self, value: _Own) -> list[Any]:
        return list(value.type().varyingSizes())

    def dtype(self, value: _Own) -> torch.dtype:
        return value.type().dtype()

    def cast(self, value: _Own, dtype: torch.dtype, shape: Sequence[Any]) -> _Own:
        made = self._graph.op("Cast", value, to_i=_onnx_type(dtype))
        sizes = [size if isinstance(size, int) else None for size in shape]
        return made.setType(value.type().with_dtype(dtype).with_sizes(sizes))

    def number(self, length: object) -> Any:
        return length if isinstance(length, int) else None

    def length(self, length: Any) -> _Own:
        return self._graph.op("Reshape", length, self.ints([1]))

    def either(self, number: _Own, sides: Sides, *operands: Any, shape: Sequence[Any]) -> _Own:
        condition = self.cast(number, torch.bool, (1,))
        own = [lambda graph, side=side: side(_Trace(graph), *operands) for side in sides]
        made = if_node(self._graph, condition, own)
        return made.setType(operands[0].type().with_sizes([size if isinstance(size, int) else None for size in shape]))


def _kind(value: object) -> str:
    first = value[0] if isinstance(value, list | tuple) else value
    return {int: "i", float: "f", str: "s"}[type(first)]


def _onnx_type(dtype: torch.dtype) -> int:
    known: Any = torch.onnx.JitScalarType  # type: ignore[attr-defined]  # public, and not declared so
    return int(known.from_dtype(dtype).onnx_type())


class _Recorded(torch.autograd.Function):
    """An autograd function, which the tracer records as one node; its `symbolic` writes the ONNX nodes."""

    apply = vars(torch.autograd.Function)["apply"]  # torch's own: a patch of the user's functions is not asked

    @staticmethod
    def forward(ctx: object, recipe: Recipe, example: Sequence[object], x: torch.Tensor, *more: object) -> torch.Tensor:
        # Only tensors that are arguments may be used in here. The tracer would look for others, and for traced sizes,
        # in this function's own subgraph, and not find them.
        given = (size if isinstance(size, int) else own for size, own in zip(example, more, strict=True))
        made: torch.Tensor = recipe[0](x, *given)
        # A model may write into what it gets; torch refuses that for a view that such a function makes.
        return made.clone() if made is x or made._is_view() else made

    @staticmethod
    def repeated(recipe: Recipe, example: Sequence[object], x: torch.Tensor, *more: object) -> torch.Tensor:
        """The same on fake tensors and symbolic sizes, for who asks which sizes of the result are always the same."""
        return recipe[0](x, *more)

    @staticmethod
    def symbolic(graph: Any, recipe: Recipe, example: Sequence[object], x: _Own, *more: _Own) -> _Own:
        made = recipe[1](_Trace(graph), x, *more)
        return graph.op("Identity", x) if made is x else made  # the exporter drops a node that returns its input
