"""Checks of what a call is given, before any work: numbers, the opset, and models that cannot be run or walked."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

import torch
from torch.nn.parameter import is_lazy

from onnxpatch.errors import InputError

_LOWEST_OPSET = 7  # the lowest that torch's exporters write


def check_numbers(tolerance: float, max_probes: int, opset: int | None = None) -> None:
    """Raise InputError for a tolerance below 0, NaN or infinite, for max_probes below 1, for an unknown opset."""
    if not math.isfinite(tolerance) or tolerance < 0:
        raise InputError(
            f"tolerance={tolerance}: give a share of the output's largest magnitude, 0 or more, such as 0.001"
        )
    if max_probes < 1:
        raise InputError(f"max_probes={max_probes}: give 1 or more, since the example itself is one probe")
    if opset is not None:
        check_opset(opset)


def check_opset(opset: int) -> None:
    """Raise InputError where torch's exporters or the installed onnx do not know the opset."""
    import onnx

    highest = onnx.defs.onnx_opset_version()
    if not _LOWEST_OPSET <= opset <= highest:
        raise InputError(f"opset {opset}: the installed onnx {onnx.__version__} knows {_LOWEST_OPSET} to {highest}")


def check_depth(model: torch.nn.Module) -> None:
    """Raise InputError for modules that are nested deeper than torch itself can walk."""
    try:
        for _ in model.modules():
            pass
    except RecursionError:
        raise InputError(
            f"the modules of {type(model).__name__} are nested deeper than Python's recursion limit "
            f"({sys.getrecursionlimit()}), and torch cannot walk them: raise it with sys.setrecursionlimit"
        ) from None


def check_runnable(model: object) -> None:
    """Raise InputError for a model that has no values yet: on the meta device, or with lazy parameters."""
    if not isinstance(model, torch.nn.Module):
        return
    check_depth(model)
    tensors = [*model.named_parameters(), *model.named_buffers()]
    name = type(model).__name__
    if lazy := [path for path, tensor in tensors if is_lazy(tensor)]:
        raise InputError(
            f"{name} has lazy parameters that have no shape yet ({_some(lazy)}): run it once, model(*args), before it "
            "is exported"
        )
    if meta := [path for path, tensor in tensors if tensor.is_meta]:
        raise InputError(
            f"{name} has tensors on the meta device ({_some(meta)}), which hold no values, so there is nothing to "
            "export or compare: load its weights first. onnxpatch.plan and patched take it as it is"
        )


def _some(paths: Iterable[str]) -> str:
    first, *others = paths
    return f"{first} and {len(others)} more" if others else first
