"""What replaces `bool(tensor)` and `tensor.item()` while a model is exported: a decision, and a number in the graph."""

from __future__ import annotations

from typing import cast

import torch

from onnxpatch.control_flow.capture import Capture

_T = torch.Tensor


def decide_bool(capture: Capture, tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path; tensor: one element of any dtype and shape."""
    if tensor.dtype is not torch.bool:
        tensor = capture.execute(_T.ne, (tensor, 0))
    if tensor.dim():
        tensor = capture.execute(_T.reshape, (tensor, ()))
    return capture.decide(tensor)


def decide_one_of(capture: Capture, tensor: torch.Tensor, numbers: list[int]) -> bool:
    """The decision whether a whole number, as a 0-d tensor, is one of two."""
    first, second = numbers
    return decide_bool(capture, (tensor == first) | (tensor == second))


def as_number(capture: Capture, tensor: torch.Tensor) -> torch.Tensor | torch.SymInt:
    """`tensor.item()` in the graph: a 0-d tensor; under dynamo, a SymInt for whole numbers."""
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype is not torch.bool
    if whole and capture.exporter == "dynamo":
        return cast(torch.SymInt, capture.execute(_T.item, (tensor,)))
    return capture.execute(_T.reshape, (tensor, ())) if tensor.dim() else tensor
