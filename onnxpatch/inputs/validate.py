"""Checks of the plain numbers that a call takes: tolerance, number of probes, opset."""

from __future__ import annotations

import math

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
