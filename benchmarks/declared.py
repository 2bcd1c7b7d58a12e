"""The second export that the message of a refusal asks for: sizes declared as it prints them, `Dim('h', min=4)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from torch.export import Dim

from benchmarks.case import Case
from onnxpatch import VerificationError

Result = TypeVar("Result")


def as_printed(case: Case, export: Callable[[Case], Result]) -> Result:
    """`export(case)`; where that is refused with sizes to declare, `export` once more of the case with these."""
    try:
        return export(case)
    except VerificationError as error:
        within = getattr(error.report, "right_within", [])
        if not within or case.dynamic_shapes is None:
            raise
        declared = {one.dimension: eval(one.declare, {"Dim": Dim}) for one in within}
        again = dataclasses.replace(case, dynamic_shapes=_replaced(case.dynamic_shapes, declared))
        if any(outside(again.dynamic_shapes, args) for args in case.inputs):
            raise  # the table asks for sizes that the declaration leaves out
    return export(again)


def _replaced(shapes: Any, declared: dict[str, Any]) -> Any:
    if isinstance(shapes, dict):
        return {key: _replaced(value, declared) for key, value in shapes.items()}
    if isinstance(shapes, tuple | list):
        return type(shapes)(_replaced(value, declared) for value in shapes)
    return declared.get(shapes, shapes) if isinstance(shapes, str) else shapes


def outside(shapes: Any, args: Any) -> bool:
    """Whether a size of the arguments is not one of those declared."""
    if isinstance(shapes, dict) and all(isinstance(axis, int) for axis in shapes):
        return any(not _admits(dim, args.shape[axis]) for axis, dim in shapes.items())
    inner = shapes.values() if isinstance(shapes, dict) else shapes or ()
    return any(outside(one, arg) for one, arg in zip(inner, args, strict=False))


def _admits(dim: Any, size: int) -> bool:
    root, multiple = getattr(dim, "root", dim), 1
    if root is not dim:  # 14*Dim('h')
        multiple = int(dim.fn(1))
    low, high = getattr(root, "min", 0), getattr(root, "max", None)
    return size % multiple == 0 and size // multiple >= low and (high is None or size // multiple <= high)
