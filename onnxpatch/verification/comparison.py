"""Compares an output of a graph with eager's: shape, dtype, errors, cosine, the first element that differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from onnxpatch.onnxfile.runtimes.interface import as_array
from onnxpatch.results.checks import OutputParity

# The largest difference that still counts as equal, as a share of the output's largest magnitude. float16 keeps 11 bits
# and bfloat16 8, and two correct kernels round differently at every layer: their bounds are about ten roundings wide.
TOLERANCES: dict[torch.dtype, float] = {torch.float16: 1e-2, torch.bfloat16: 6e-2}
TOLERANCE = 1e-3
# For values that cannot be compared element by element.
_UNKNOWN: dict[str, Any] = {"absolute": math.nan, "relative": math.nan, "cosine": math.nan}
NON_FINITE = "non-finite values differ"  # a reason
_SMALLEST = 1e-6  # stands for the magnitude of an output that is all zeros
_DENORMAL = 1e-30  # below this float32 loses digits, and runtimes flush to zero
# One column of an output may be far smaller than the others: scores in [0, 1] beside boxes in pixels. A difference of
# a twentieth of the column is no rounding if it is also a tenth of what the whole output is allowed.
_COLUMN, _SHARE = 0.05, 0.1
_COARSE = {"float16", "bfloat16"}  # rounding of the large columns reaches the small ones
_FEW = 8  # elements, of which noise may look like a factor
_CHANNELS = 256  # more columns than these are features, not quantities of their own


def tolerance_for(dtype: torch.dtype, tolerance: float) -> float:
    """The bound for an output of this dtype, if the bound for float32 is `tolerance`."""
    return max(tolerance, TOLERANCES.get(dtype, 0.0))


def compare(name: str, expected: torch.Tensor, found: object, tolerance: float = TOLERANCE) -> OutputParity:
    """Compare `found` (array or tensor) with eager's output: floats within the tolerance, ints and bools exactly.

    tolerance: math.inf to measure alone. Wrong is then another shape, floats for whole numbers, and a NaN of its own.
    """
    want, got = as_array(expected), as_array(found)
    head = OutputParity(name, tuple(want.shape), tuple(got.shape), dtype_text(expected), dtype_text(found))
    if want.shape != got.shape:
        return replace(head, reason=f"shape {tuple(got.shape)}, eager has {tuple(want.shape)}", **_UNKNOWN)
    measured = math.isinf(tolerance)
    if _kind(want, expected) != _kind(got, found) and not (measured and want.dtype.kind == got.dtype.kind):
        # Another dtype breaks what reads the file, whatever the values are.
        return replace(head, reason=f"dtype {head.found_dtype}, eager has {head.dtype}", **_UNKNOWN)
    if want.size == 0:
        return head
    head = replace(head, top1=_top1(want, got)) if measured else head
    if want.dtype.kind == "f":
        return _floats(head, want, got, tolerance_for(expected.dtype, tolerance))
    exact = _exact(head, want, got)
    return accepted(exact) if measured else exact


def accepted(output: OutputParity) -> OutputParity:
    """The output without what is wrong with it; how far it is off stays."""
    return replace(output, reason="", first_index=None)


def is_blank(outputs: Sequence[torch.Tensor | None]) -> bool:
    """Whether every output is all 0, or has what is not finite: a graph may have the same by another way."""
    found = [o for o in outputs if o is not None and o.numel()]
    return bool(found) and all(not bool(o.any()) or not bool(torch.isfinite(o).all()) for o in found)


def compare_all(
    names: Sequence[str], expected: Sequence[torch.Tensor | None], found: Sequence[object], tolerance: float = TOLERANCE
) -> list[OutputParity]:
    """Compare all outputs. None in `expected`: missing, and not compared. If their number differs, that is all."""
    if len(expected) != len(found):
        reason = (
            f"the file has {len(found)} of the outputs {', '.join(names)}, the model returns {len(expected)} tensors: "
            "where the file leaves some out or adds some, flatten= turns the model's output into the file's"
        )
        return [OutputParity("outputs", (len(expected),), (len(found),), "", "", reason=reason, **_UNKNOWN)]
    pairs = zip(names, expected, found, strict=False)
    return [compare(name, want, got, tolerance) for name, want, got in pairs if want is not None]


def all_alike(expected: Sequence[torch.Tensor | None] | None, found: Sequence[object]) -> bool:
    """Whether two answers of eager are equal; None: it did not answer."""
    return expected is not None and all(one.ok for one in compare_all([""] * len(expected), expected, found))


def dtype_text(value: Any) -> str:
    """`float32`, of a tensor or an array."""
    return str(value.dtype).removeprefix("torch.")


def _kind(array: np.ndarray[Any, Any], value: object) -> str:
    """What must be the same of two dtypes. value: what the array was made of, bfloat16 being float32 in the array."""
    # int32 in place of int64 is no error: the values are compared exactly all the same.
    if array.dtype.kind != "f":
        return "i" if array.dtype.kind in "iu" else str(array.dtype.kind)
    name = dtype_text(value)
    # A complex tensor is compared as pairs of reals, a list or a number by the array that was made of it.
    return name if name in _COARSE or name.startswith("float") else str(array.dtype)


def _floats(
    head: OutputParity, want: np.ndarray[Any, Any], got: np.ndarray[Any, Any], tolerance: float
) -> OutputParity:
    # In float16 the differences themselves would overflow or vanish.
    want, got = want.astype("float64"), got.astype("float64")
    finite = np.isfinite(want)
    # NaN where eager has NaN and equal infinities are right; any other pair with one of them is wrong, at any
    # tolerance.
    odd = ~((want == got) | (np.isnan(want) & np.isnan(got)))
    odd &= ~finite | ~np.isfinite(got)
    with np.errstate(all="ignore"):
        error = np.where(finite & np.isfinite(got), np.abs(want - got), 0.0)
    largest = float(np.abs(want[finite]).max(initial=0.0))
    largest = largest if largest > _DENORMAL else _SMALLEST
    absolute = float(error.max(initial=0.0))
    wrong = odd | (error > tolerance * largest)
    if head.dtype not in _COARSE:
        wrong |= _wrong_columns(want, finite, error, tolerance * largest)
    head = replace(head, absolute=absolute, relative=absolute / largest, cosine=_cosine(want[finite], got[finite]))
    if odd.any():
        return _first(head, wrong, want, got, NON_FINITE)
    if wrong.any():
        reason = f"relative error {absolute / largest:.3g} (limit {tolerance:g})"
        if absolute <= tolerance * largest:
            reason = f"relative error {absolute / largest:.3g}, which is much in a column of small numbers"
        return _first(head, wrong, want, got, reason)
    factor = _factor(want[finite], got[finite])
    if head.dtype not in _COARSE and abs(factor - 1) > _SHARE * tolerance:
        return _first(head, error == absolute, want, got, f"{factor:.5g} times eager's throughout, no rounding")
    return head


def _factor(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:
    """By what all numbers are multiplied, if nearly all of the difference comes of that; 1 elsewhere."""
    if want.size < _FEW or np.ptp(np.abs(want)) <= _COLUMN * np.abs(want).max():
        return 1.0  # of numbers that are alike, any difference is one factor
    factor = float(np.dot(want, got) / np.dot(want, want))
    rest = float(np.linalg.norm(got - factor * want))
    return factor if rest < _COLUMN * abs(factor - 1) * float(np.linalg.norm(want)) else 1.0


def _wrong_columns(
    want: np.ndarray[Any, Any], finite: np.ndarray[Any, Any], error: np.ndarray[Any, Any], allowed: float
) -> np.ndarray[Any, Any]:
    """Errors that are small for the whole output and large for their column, along the last axis or axis 1."""
    wrong = np.zeros(want.shape, bool)
    if not (error > _SHARE * allowed).any():
        return wrong
    size = np.where(finite, np.abs(want), 0.0)
    # Channels are on axis 1 or on the last one.
    for axis in {1, want.ndim - 1} if want.ndim > 2 else {want.ndim - 1} if want.ndim == 2 else ():
        if 1 < want.shape[axis] <= _CHANNELS:
            columns = size.max(axis=tuple(a for a in range(want.ndim) if a != axis), keepdims=True)
            wrong |= (error > _SHARE * allowed) & (error > _COLUMN * columns)
    return wrong


def _exact(head: OutputParity, want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> OutputParity:
    wrong = want != got
    if not wrong.any():
        return head
    if want.dtype.kind in "biu":
        absolute = float(np.abs(want.astype("float64") - got.astype("float64")).max())
        largest = max(1.0, float(np.abs(want.astype("float64")).max()))
    else:
        absolute, largest = math.nan, 1.0
    head = replace(head, absolute=absolute, relative=absolute / largest, cosine=math.nan)
    return _first(head, wrong, want, got, f"{int(wrong.sum())} of {wrong.size} whole numbers or flags differ")


def _first(
    head: OutputParity, wrong: np.ndarray[Any, Any], want: np.ndarray[Any, Any], got: np.ndarray[Any, Any], reason: str
) -> OutputParity:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return replace(head, first_index=index, expected=want[index].item(), found=got[index].item(), reason=reason)


def _top1(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:
    """The share of rows whose largest value is at the same place; of whole numbers and flags, of equal ones."""
    if want.dtype.kind != "f":
        return float((want == got).mean())
    if not want.ndim or want.shape[-1] < 2:
        return math.nan
    return float((want.argmax(-1) == got.argmax(-1)).mean())


def _cosine(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> float:
    with np.errstate(all="ignore"):
        # Of zeros there is no angle: equal ones count as one direction.
        scale = float(np.linalg.norm(want)) * float(np.linalg.norm(got))
        return float(np.dot(want, got) / scale) if scale and math.isfinite(scale) else float((want == got).all())
