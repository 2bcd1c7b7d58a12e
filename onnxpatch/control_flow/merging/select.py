"""Chooses one of two values at run time: by `Where`, by logic for bools and flags, or by an ONNX `If` of two functions.

select(p, a, b)    value: Where(p, a.value, b.value)     flag ("is it there"): p & a.flag | ~p & b.flag

An `If` is worth it where the work of its branches is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch

from onnxpatch._torch.cond import compiled_function
from onnxpatch._torch.function_modes import unseen
from onnxpatch.control_flow.merging.output_template import Absent, Slot
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.control_flow.tape import TorchCall

Flag: TypeAlias = torch.Tensor | bool | None
"""Whether an optional value is there: known now, or a 0-d bool tensor; None for values that always are."""

# Calls with an inner product in every element of the result; every other call costs one operation per element.
_INNER_PRODUCTS = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "scaled_dot_product_attention"}
    | {"__matmul__", "__rmatmul__", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "tensordot"}
    | {"multi_head_attention_forward", "lstm", "gru", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
)
_FREE = ("__get__", "size", "dim")  # `x.shape` and its like compute nothing
Operand: TypeAlias = torch.Tensor | torch.SymInt
Side = Callable[..., tuple[torch.Tensor, ...]]
_numbers = itertools.count()


@dataclass
class MergedValue:
    """What a slot of the output has at some node of the tree of paths."""

    value: torch.Tensor | Absent
    flag: Flag


def select(predicate: torch.Tensor, a: MergedValue, b: MergedValue, slot: Slot, fill: float = 0) -> MergedValue:
    """`a` where the predicate (0-d, bool) is true, else `b`; elements of `fill` where a value is absent."""
    return MergedValue(_value(predicate, a.value, b.value, slot, fill), _flag(predicate, a.flag, b.flag))


def _value(
    predicate: torch.Tensor, a: torch.Tensor | Absent, b: torch.Tensor | Absent, slot: Slot, fill: float
) -> torch.Tensor | Absent:
    # Both paths may have a tensor that was computed before they parted.
    if a is b:
        return a
    if slot.dtype is torch.bool:  # onnxruntime has no Where for bool
        sides = [value & p for value, p in ((a, predicate), (b, ~predicate)) if not isinstance(value, Absent)]
        return sides[0] if len(sides) == 1 else sides[0] | sides[1]
    sentinel = torch.full((), fill, dtype=slot.dtype)
    return torch.where(predicate, sentinel if isinstance(a, Absent) else a, sentinel if isinstance(b, Absent) else b)


def _flag(predicate: torch.Tensor, a: Flag, b: Flag) -> Flag:
    if a is b:
        return a
    # Flags known now cost no operation, or one.
    if isinstance(a, bool) and isinstance(b, bool):
        return predicate if a else ~predicate
    if isinstance(a, bool):
        other = cast(torch.Tensor, b)
        return predicate | other if a else ~predicate & other
    first = cast(torch.Tensor, a)
    if isinstance(b, bool):
        return ~predicate | first if b else predicate & first
    return (predicate & first) | (~predicate & cast(torch.Tensor, b))


def conditional(
    predicate: torch.Tensor, then: Side, otherwise: Side, operands: list[Operand], alive: list[object]
) -> list[torch.Tensor]:
    """The results of `then(*operands)` or `otherwise(*operands)`, as one If in the graph that is being captured.

    predicate: 0-d bool tensor. Both sides return equally many tensors, none of them an operand. alive: gets the
    compiled function under trace, which must live until the export is over.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        names = [f"x{number}" for number in range(len(operands))]
        arguments = ", ".join(names)
        lines = ["if bool(p):", f"    r = then({arguments})", "else:", f"    r = otherwise({arguments})", "return r"]
        example = [operand for operand in operands if isinstance(operand, torch.Tensor)]  # sizes are tensors here too
        functions = {"then": (then, example), "otherwise": (otherwise, example)}
        function = compiled_function(f"onnxpatch_if_{next(_numbers)}", ["p", *names], lines, functions)
        alive.append(function)
        results = function(predicate, *operands)
    else:
        results = torch.ops.higher_order.cond(predicate, then, otherwise, tuple(operands))
    return [results] if isinstance(results, torch.Tensor) else list(results)


def multiply_adds(calls: Iterable[TorchCall]) -> int:
    """The work of calls at the example's sizes."""
    return sum(_of_call(call) for call in calls)


def _of_call(call: TorchCall) -> int:
    results = tensors(call.result)
    if not results or call.constant or call.name in _FREE:
        return 0
    elements = max(_elements(tensor) for tensor in results)
    if call.name not in _INNER_PRODUCTS:
        return elements
    operands = [tensor for tensor in tensors((call.args, call.kwargs)) if tensor.dim()]
    # A weight [out, in, ...] has in * ... factors for each element of the result.
    inner = max((_elements(tensor) // max(1, _size(tensor.shape[0])) for tensor in operands), default=1)
    return elements * max(1, inner)


def _elements(tensor: torch.Tensor) -> int:
    total = 1
    for size in tensor.shape:
        total *= _size(size)
    return total


def _size(size: int | torch.SymInt | torch.Tensor) -> int:
    """A size at the example; 8 where it depends on data. While tracing, sizes are tensors."""
    if isinstance(size, torch.SymInt):
        # 8 is arbitrary: the estimate only chooses between two forms that are both right.
        hint = size.node.hint
        return 8 if hint is None else int(hint)
    with unseen():  # int() of a tensor would be taken for a conversion of the user's
        return int(size)
