"""How much memory the results of an operator will take, known before its kernel runs.

    torch.arange(0, 14_000_000_000)      14e9 elements, found without making one

Most calls are told to be small by a bound that costs a microsecond: the product of all elements and whole numbers that
the operator gets. What exceeds it is asked on meta tensors, which have shapes and no values, and is remembered. Where
shapes follow from values (`repeat_interleave`, `bincount`, `nonzero`), the values are read.

Of `OpOverload`, `_schema` says which results are views or operands, and `tags` which operators broadcast. If these
move, every operator is asked, which takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["beyond_bounds", "fits", "makes_storage", "result_bytes", "sized_by_data"]

_WIDEST = 16  # bytes of the largest element; of two results of 8 each, too
_RESIZING = frozenset({"aten::resize_", "aten::resize_as_", "aten::set_"})
_MOST_REMEMBERED = 4096
_remembered: dict[Any, float] = {}


def makes_storage(operator: Any) -> bool:
    """Whether an operator's results may be new memory: they are neither views nor operands that it writes into."""
    schema = getattr(operator, "_schema", None)
    if schema is None:
        return True
    # `add.out` and `sort.values` give an operand that they write into another size; `add_` does not.
    if schema.name in _RESIZING or (schema.is_mutable and not schema.name.endswith("_")):
        return True
    return any(result.alias_info is None for result in schema.returns)


def sized_by_data(operator: Any) -> bool:
    """Whether the values of its operands decide what an operator gives: a Python number, or results of another size."""
    tags = getattr(operator, "tags", None)
    if tags is None:
        return True
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


def beyond_bounds(operator: Any) -> bool:
    """Whether one number in a tensor may make any size, so that `fits` says nothing: `bincount(tensor([10**8]))`."""
    return getattr(operator, "__name__", "") in ("bincount.default", "repeat_interleave.Tensor")


def fits(args: Sequence[Any], kwargs: Mapping[str, Any], room: float) -> bool:
    """Whether the bound alone says that the results take at most `room` bytes."""
    elements, most = 1.0, room / _WIDEST
    for one in (*args, *kwargs.values()) if kwargs else args:
        elements *= _factor(one)
        if not elements <= most:
            return False
    return True


def _factor(one: Any) -> float:
    if isinstance(one, torch.Tensor):
        return one.numel() or 1
    if isinstance(one, bool) or one is None:
        return 1
    if isinstance(one, int):
        return abs(one) + 1
    if isinstance(one, float):
        return max(abs(one), 1 / abs(one)) if one else 1  # the step of a range
    if isinstance(one, list | tuple):
        return math.prod(map(_factor, one))
    return 1


def result_bytes(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The bytes of all results, or the largest number that they may be."""
    operands = [*_tensors((*args, *kwargs.values()))]
    if any(one.is_nested for one in operands):  # they have no one shape; the encoder layers of torch use them
        return float(sum(one.numel() * max(8, one.element_size()) for one in operands))
    named = _BY_VALUES.get(getattr(operator, "__name__", ""))
    if named is not None:
        schema = operator._schema
        return named({**dict(zip((argument.name for argument in schema.arguments), args, strict=False)), **kwargs})
    if torch.Tag.pointwise in getattr(operator, "tags", ()):
        shapes = [one.shape for one in operands]
        width = max((one.element_size() for one in _tensors(args)), default=8)
        return float(math.prod(_broadcast(shapes)) * max(8, width))
    key = _key(operator, args, kwargs)
    found = _remembered.get(key) if key is not None else None
    if found is None:
        found = _on_meta(operator, args, kwargs)
        if key is not None and len(_remembered) < _MOST_REMEMBERED:
            _remembered[key] = found
    return found


def _on_meta(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """The bytes of the results by the operator's own rule for shapes, or by its largest operand where it has none."""
    tensors = [*_tensors((*args, *kwargs.values()))]
    try:
        moved = {name: _meta(one) for name, one in kwargs.items() if not isinstance(one, torch.Generator)}
        if not tensors:
            moved["device"] = torch.device("meta")
        results = operator(*(_meta(one) for one in args), **moved)
    except Exception:  # no rule for shapes, or one that needs values
        largest = max((one.numel() * max(8, one.element_size()) for one in tensors), default=None)
        return float(largest) if largest is not None else _WIDEST * math.prod(map(_factor, args))
    return float(sum(one.numel() * one.element_size() for one in _tensors((results,))))


def _meta(one: Any) -> Any:
    if isinstance(one, torch.Tensor):
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")
    if isinstance(one, list | tuple):
        return type(one)(map(_meta, one))
    return torch.device("meta") if isinstance(one, torch.device) else one


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _broadcast(shapes: Sequence[Sequence[int]]) -> Iterator[int]:
    """The sizes of the result, last axis first."""
    for axis in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis}
        yield max(sizes - {1}, default=1)


def _key(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    key = (operator, _form(args), _form(tuple(kwargs.items())))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _form(one: Any) -> Any:
    if isinstance(one, torch.Tensor):
        return (one.shape, one.dtype)
    return tuple(map(_form, one)) if isinstance(one, list | tuple) else (type(one), one)


# ------------------------------------------------------------------ operators whose results' sizes are values
def _range(call: Mapping[str, Any]) -> float:
    start, end, step = call.get("start", 0), call["end"], call.get("step", 1)
    return 8.0 * abs((float(end) - float(start)) / (float(step) or math.inf))


def _repeated(call: Mapping[str, Any]) -> float:
    return 8.0 * float(call["repeats"].sum())


def _counts(call: Mapping[str, Any]) -> float:
    largest = float(call["self"].max()) + 1 if call["self"].numel() else 0.0
    return 8.0 * max(largest, float(call.get("minlength", 0)))


def _positions(call: Mapping[str, Any]) -> float:
    return 8.0 * float(torch.count_nonzero(call["self"])) * call["self"].dim()


def _selected(call: Mapping[str, Any]) -> float:
    chosen, values = torch.broadcast_tensors(call["mask"], call["self"])
    return float(torch.count_nonzero(chosen)) * values.element_size()


_BY_VALUES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "arange.default": _range,
    "arange.start": _range,
    "arange.start_step": _range,
    "range.step": _range,
    "range.default": _range,
    "repeat_interleave.Tensor": _repeated,
    "bincount.default": _counts,
    "nonzero.default": _positions,
    "masked_select.default": _selected,
}
