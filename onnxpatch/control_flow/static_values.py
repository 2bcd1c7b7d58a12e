"""Which sizes and numbers are the same for all inputs of the export, so that Python may have them as plain numbers.

Under dynamo a size is a SymInt, static if its expression has no symbols. Under trace it is a tensor; `SymbolicShadow`
knows the symbolic size that belongs to it, else the graph that was traced so far.

    x [batch, 64], batch dynamic:   static_size(x.shape[1]) == 64      static_size(x.shape[0]) is None
"""

from __future__ import annotations

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch._torch.symbolic_sizes import static_number
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.capture import Capture
from onnxpatch.decisions.place import here
from onnxpatch.errors import BranchError


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
