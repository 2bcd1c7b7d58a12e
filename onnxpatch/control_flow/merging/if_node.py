"""An ONNX `If` from two functions, and whether the work of its branches is worth one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import torch

from onnxpatch._torch.cond import compiled_function
from onnxpatch._torch.function_modes import unseen
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.control_flow.tape import TorchCall

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
