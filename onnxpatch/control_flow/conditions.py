"""Conditions are decisions: the forward runs once for each answer. Numbers stay in the graph, unless they are static.

if x.sum() > 0:          Tensor.__bool__      a decision; the predicate is the tensor
if x.shape[0] > 4:       SymBool.__bool__     under dynamo; the predicate is torch.full((), condition)
self.layers[x.shape[0]]  SymInt.__index__     a decision for each entry of the list

A number that is the same for all inputs of the export Python may have as it is. Under dynamo a size is a SymInt, static
if its expression has no symbols. Under trace it is a tensor; `SymbolicShadow` knows the symbolic size that belongs to
it, else the graph that was traced so far.

x [batch, 64], batch dynamic:   static_size(x.shape[1]) == 64      static_size(x.shape[0]) is None
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch._torch.function_modes import tracing_paused, unseen
from onnxpatch._torch.symbolic_sizes import static_number
from onnxpatch.control_flow.capture import Capture
from onnxpatch.decisions.ask import deciding_frame, here
from onnxpatch.errors import BranchError

_T = torch.Tensor


def decide_tensor(capture: Capture, function: Callable[..., object], tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path; torch's own where torch itself asks for a size."""
    # A check of torch's own layers has no second side to explore.
    if capture.sizes.on_sizes(tensor) and deciding_frame(0) is None:
        with unseen():
            return bool(tensor)
    return decide_bool(capture, tensor)


def decide_bool(capture: Capture, tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path; tensor: one element of any dtype and shape."""
    if tensor.dtype is not torch.bool:
        tensor = capture.execute(_T.ne, (tensor, 0))
    if tensor.dim():
        tensor = capture.execute(_T.reshape, (tensor, ()))
    return capture.decide(tensor)


def decide_sizes(capture: Capture, function: Callable[..., object], condition: torch.SymBool) -> bool:
    """The answer to a condition on sizes on this path."""
    settled = capture.sizes.answer(condition)
    if settled is not None:
        return settled
    # Where and torch.cond are given a tensor, whether sizes decide or data.
    predicate = capture.execute(torch.full, ((), condition), {"dtype": torch.bool})
    return capture.decide(predicate, condition)


def decide_one_of(capture: Capture, number: Any, numbers: list[int]) -> bool:
    """The decision whether a whole number, as a 0-d tensor or a size, is one of two."""
    first, second = numbers
    condition = (number == first) | (number == second)
    if isinstance(condition, torch.Tensor):
        return decide_bool(capture, condition)
    known = condition if isinstance(condition, bool) else constant_answer(condition)
    return decide_sizes(capture, torch.SymBool.__bool__, condition) if known is None else known


def decide_entry(capture: Capture, number: torch.Tensor | torch.SymInt) -> int:
    """The index that a number has on this path, in the list that the user's code indexes with it."""
    key = id(number) if isinstance(number, torch.Tensor) else cast(Any, number.node.expr)
    return capture.list_lengths.choose(key, lambda numbers: decide_one_of(capture, number, numbers))


def as_number(capture: Capture, tensor: torch.Tensor) -> torch.Tensor | torch.SymInt:
    """`tensor.item()` in the graph: a 0-d tensor; under dynamo, a SymInt for whole numbers."""
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype is not torch.bool
    if whole and capture.exporter == "dynamo":
        return cast(torch.SymInt, capture.execute(_T.item, (tensor,)))
    return capture.execute(_T.reshape, (tensor, ())) if tensor.dim() else tensor


def static_size(size: object) -> int | None:
    """A size that is the same for all inputs, as an int; None where it may depend on them."""
    if isinstance(size, bool | int):
        return size
    if isinstance(size, torch.SymInt):
        return int(size.node.expr) if not size.node.expr.free_symbols else None
    return None


def static_value(capture: Capture, number: object) -> int | bool | None:
    """The value of a 0-d tensor, size or condition that is the same for all inputs; None where it may depend on one."""
    if isinstance(number, torch.SymBool):
        return constant_answer(number)
    if capture.exporter == "dynamo" or not isinstance(number, torch.Tensor):
        return static_size(number)
    symbolic = capture.shadow.get(number) if capture.shadow is not None else None
    if symbolic is None and number.dim() == 0:  # a call on the way could not be repeated: the graph may tell
        known = static_number(number)
        return None if isinstance(known, float) else known
    return constant_answer(symbolic) if isinstance(symbolic, torch.SymBool) else static_size(symbolic)


def static_dim(capture: Capture, tensor: torch.Tensor, dim: int) -> int | None:
    """The size of one dimension if it is the same for all inputs; None where it may depend on them."""
    if capture.shadow is None:
        return static_size(tensor.shape[dim])
    if capture.shadow.unknown(tensor):
        return None
    symbolic = capture.shadow.get(tensor)
    # Reading a size of a traced tensor would put a node into the graph.
    with tracing_paused():
        return static_size((symbolic if isinstance(symbolic, torch.Tensor) else tensor).shape[dim])


def needs_static(capture: Capture, what: str) -> BranchError:
    """The refusal of what needs a number that is the same for all inputs."""
    return capture.refusal(
        here(),
        f"{what}, whose value depends on the inputs",
        remedy="keep it a tensor (slices and sizes take 0-d tensors), or put a loop's body into a function marked "
        "@onnxpatch.scan or @onnxpatch.while_loop",
    )
