"""The plain figures of a call, tolerance, number of probes and opset: what no check could be made with is refused."""

from __future__ import annotations

import math

from onnxpatch.errors import InputError

_LOWEST_OPSET = 7  # what torch's exporters begin with


def check_figures(tolerance: float, max_probes: int, opset: int | None = None) -> None:
    """Raises InputError: a tolerance that is negative or no number, no probe at all, an opset that ONNX has not."""
    if not math.isfinite(tolerance) or tolerance < 0:
        raise InputError(f"tolerance {tolerance}: give a share of the largest magnitude, 0 or more, such as 0.001")
    if max_probes < 1:
        raise InputError(f"max_probes {max_probes}: the example at least is compared: give 1 or more")
    if opset is not None:
        check_opset(opset)


def check_opset(opset: int) -> None:
    """Raises InputError where the installed onnx does not know it."""
    import onnx

    highest = onnx.defs.onnx_opset_version()
    if not _LOWEST_OPSET <= opset <= highest:
        raise InputError(f"opset {opset}: the installed onnx {onnx.__version__} knows {_LOWEST_OPSET} to {highest}")
