"""What patches ask of the running export: sizes (int and SymInt under dynamo, 0-d tensors under trace) and constants.

A Python number made of a size (`int`, `float`, `math.sqrt`, `max`) freezes it at the example's value, silently. What is
here keeps it symbolic. Much of it is implemented in `onnxpatch._torch`; patches import it from here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from onnxpatch._torch import Array, exporting, numpy_on_tensors
from onnxpatch._torch.cond import assume, free_symbols
from onnxpatch._torch.function_modes import function_name, tracing_paused
from onnxpatch._torch.symbolic_sizes import (
    constant_size,
    decided_by_data,
    divides_negative,
    example_number,
    example_of,
    missing_to,
    never_negative,
    relation_of,
    rounded_quotient,
    sampled_sizes,
    split_fraction,
    spread_by_sizes,
    static_number,
    traced_from,
    traced_from_sizes,
    traced_value,
)
from onnxpatch._torch.tensor_origins import (
    all_ones,
    constant,
    divided_by_data,
    empty_at_first,
    keep_constant,
    operator_of,
    places_along,
    unrecorded,
)  # fmt: skip

__all__ = [
    "Array", "all_ones", "as_float", "as_tensor", "assume", "chosen", "constant", "constant_size", "counted",
    "decided_by_data", "divided_by_data", "divides_negative", "empty_at_first", "example_number", "example_of",
    "function_name", "keep_constant", "known_size", "missing_to", "never_negative", "numpy_on_tensors", "one_step",
    "operator_of", "places_along", "relation_of", "rounded_quotient", "same_size", "sampled_sizes", "scaled",
    "size_of_data", "split_fraction", "spread_by_sizes", "static_number", "symbolic", "traced_from",
    "traced_from_sizes", "traced_value", "tracing_paused", "truncated", "unrecorded",
]  # fmt: skip

# float32, in which ONNX computes on sizes, may come out just below a whole number that eager's float64 reaches.
ROUNDING = 1e-6
_OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def symbolic(value: object) -> bool:
    """Whether `value` is a size, or a number computed from sizes, that must not become a Python number."""
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return not (hasattr(value.node, "is_constant") and value.node.is_constant())
    return isinstance(value, Tensor) and value.dim() == 0 and traced_from_sizes(value) and static_number(value) is None


def fixed_size(x: Tensor, axis: int) -> int | None:
    """The size of an axis as a number, for what is unrolled by it; None for a dynamic one under dynamo.

    Under trace every size is a tensor, whether it may change or not: there it is the example's.
    """
    size = x.shape[axis]
    if isinstance(size, Tensor):
        with tracing_paused():  # or `shape` gives a tensor that is recorded
            return x.shape[axis]
    return size if isinstance(size, int) else None


def known_size(size: Any) -> Any:
    """A size as a number where no input changes it: under trace every size is a tensor. Others as they are."""
    number = static_number(size) if isinstance(size, Tensor) else None
    return size if number is None else number


def same_size(a: Any, b: Any) -> bool:
    """Whether two sizes are the same at all sizes of the inputs, as far as that can be told without a guard."""
    difference = a - b
    if isinstance(difference, Tensor):
        return static_number(difference) == 0
    return not free_symbols(difference) and int(difference) == 0


def one_step(bounds: Sequence[Any]) -> bool:
    """Whether `range(start, stop, step)` of a dynamic step has one number, since `stop` is `start + step`.

    The formula itself must say so: at the example alone it may be chance.
    """
    if len(bounds) != 3 or not symbolic(bounds[2]):
        return False
    start, stop, step = bounds
    if isinstance(step, Tensor) or isinstance(stop, Tensor):
        return isinstance(start, int) and start == 0 and stop is step
    return constant_size(stop - start - step) == 0


def truncated(value: Any) -> Any:
    """`int(value)` of a symbolic number: the whole number towards zero, symbolic still."""
    if isinstance(value, torch.SymInt):
        return value
    if isinstance(value, torch.SymFloat):
        whole = rounded_quotient(value)
        return torch.sym_int(value) if whole is None else whole
    if not value.dtype.is_floating_point:
        return value
    if value.dtype == torch.float64:  # as Python computes
        return value.to(torch.int64)
    return (value + value.abs() * ROUNDING).to(torch.int64)


def as_float(value: object) -> Any:
    """`float(value)` of a symbolic number."""
    if isinstance(value, Tensor):
        return value.to(torch.float64)
    return torch.sym_float(value)


def as_tensor(value: Any, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """A 0-d tensor of any size or number."""
    if isinstance(value, Tensor):
        made = value.to(dtype)
        return made if device is None or made.device == torch.device(device) else made.to(device)
    return torch.scalar_tensor(value, dtype=dtype, device=device)


def counted(size: Any, like: Tensor) -> Tensor:
    """A size as a 0-d tensor that the graph computes, on the device of `like`. A Python float would freeze it."""
    return size if isinstance(size, Tensor) else torch.ones_like(torch.arange(size, device=like.device)).sum()


def size_of_data(count: Tensor) -> Any:
    """A whole number that data decides, 0-d, as a size. torch.export takes an item() only if it cannot be negative."""
    if exporting() == "trace":
        return count
    size = count.item()
    torch._check(size >= 0)
    return size


def scaled(size: Any, scale: Any) -> Any:
    """`floor(size * scale)`, the output size of a scale factor, in eager's double precision where that can be had, and
    in the simplest terms: a whole size plus a fraction below 1 is that size."""
    if isinstance(size, Tensor) or isinstance(scale, Tensor):
        product = as_tensor(size, torch.float64) * as_tensor(scale, torch.float64)
        return product.floor().to(torch.int64)
    product = size * scale
    if not isinstance(product, torch.SymFloat):
        return torch.sym_int(product)
    split = split_fraction(product)
    return split[0] if split else truncated(product)


def chosen(comparison: tuple[Any, str, Any], new: Any, old: Any) -> Any:
    """`new` if a comparison of sizes is true, else `old`, as a size; None if there is no expression for that.

    comparison: such as (size, "<=", 7).
    """
    left, sign, right = comparison
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        holds = getattr(operator, _OPERATORS[sign])(as_tensor(left, torch.int64), as_tensor(right, torch.int64))
        return torch.where(holds, as_tensor(new, torch.int64), as_tensor(old, torch.int64))
    if not all(isinstance(number, int | torch.SymInt) for number in (left, right, new, old)):
        return None
    if sign in ("<", "<=", ">", ">=") and _same(new, left) and _same(old, right):
        # torch's solver knows more of these than of products
        return (torch.sym_min if sign in ("<", "<=") else torch.sym_max)(new, old)
    if sign in ("==", "!="):
        # A symbolic size has no `where`: 0 or 1, made by min and max, chooses by multiplication.
        differ = torch.sym_min(1, torch.sym_max(left - right, right - left))
        return old + differ * (new - old) if sign == "!=" else new + differ * (old - new)
    # Whole numbers: a <= b is a < b + 1.
    above = (right - left if sign in ("<", "<=") else left - right) + (1 if "=" in sign else 0)
    if same_size(new - old, above):  # the amount that is missing: old + max(above, 0)
        return torch.sym_max(new, old)
    # As for equality: 1 where the difference is at least 1, else 0.
    return old + torch.sym_min(1, torch.sym_max(0, above)) * (new - old)


def _same(a: object, b: object) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


RowT = TypeVar("RowT")
RowsT = TypeVar("RowsT", bound=Sequence[Any])
_ROW = "__onnxpatch_row__"  # on each row: (the tensor it is of, its number, how many there are in the example)


def remember(rows: RowsT, whole: Tensor) -> RowsT:
    """The rows of a tensor, or the numbers of a vector, each of which knows that it is one."""
    for number, row in enumerate(rows):
        # On the row itself: what is computed from it is another tensor or size, without a mark.
        vars(row)[_ROW] = (whole, number, len(rows))
    return rows


def is_row(value: object) -> bool:
    return hasattr(value, _ROW)


def same_row(found: RowT, row: object) -> RowT:
    """`found` with the mark of a row, of which it is only another form."""
    if is_row(row) and symbolic(found) | isinstance(found, Tensor):
        vars(found)[_ROW] = vars(row)[_ROW]
    return found


def whole_of(rows: object) -> Tensor | None:
    """The tensor whose rows these are, all of them in their order; None for any other list."""
    marks = [getattr(row, _ROW, None) for row in rows] if isinstance(rows, list | tuple) else []
    if not marks or marks[0] is None:
        return None
    whole, _, count = marks[0]
    numbers = [mark[1] for mark in marks if mark is not None and mark[0] is whole]
    # All rows, in order, and nothing else between them: only then is the whole what eager makes at any size.
    return whole if numbers == list(range(count)) and len(marks) == count else None
