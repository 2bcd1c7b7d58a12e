"""Tells what a torch call will do before its kernel runs: how much memory it takes, whether it reads out of bounds.

    torch.arange(0, 14_000_000_000)                14e9 elements, found without making one
    torch.segment_reduce(x, "sum", offsets=o)      with an offset beyond x's end, the process ends

Most calls are told to be small by a bound that costs a microsecond: the product of all elements and whole numbers that
the operator gets. What exceeds it is asked on meta tensors, which have shapes and no values, and is remembered. Where
shapes follow from values (`repeat_interleave`, `bincount`, `nonzero`), the values are read. Of operators whose C code
does not look at positions, operands are read: probes move whole numbers, and no exception comes from there. On a GPU
most kernels look at them, but one bad position ends all further use of the GPU by the process (device-side assert):
there each operator with positions is checked.

Of `OpOverload`, `_schema` says which results are views or operands, and `tags` which operators broadcast. If these
move, every operator is asked, which takes longer, and no position is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

_RESIZING = frozenset({"aten::resize_", "aten::resize_as_", "aten::set_"})
_MOST_REMEMBERED = 4096
_remembered: dict[Any, float] = {}
_Call = Mapping[str, Any]  # a call's operands, by the names in the operator's schema


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
    """Whether one number in a tensor may make any size, whatever its elements: `bincount(tensor([10**8]))`."""
    return getattr(operator, "__name__", "") in ("bincount.default", "repeat_interleave.Tensor")


def result_bytes(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], most: float = math.inf) -> float:
    """The bytes of all results, or the largest number that they may be. most: where the operator has no rule."""
    operands = [*_tensors((*args, *kwargs.values()))]
    if any(one.is_nested for one in operands):  # they have no one shape; the encoder layers of torch use them
        return float(sum(one.numel() * max(8, one.element_size()) for one in operands))
    named = _BY_CALL.get(getattr(operator, "__name__", ""))
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
        found = _on_meta(operator, args, kwargs, most)
        if key is not None and len(_remembered) < _MOST_REMEMBERED:
            _remembered[key] = found
    return found


def _on_meta(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], most: float) -> float:
    """The bytes of the results by the operator's own rule for shapes, or by its largest operand where it has none."""
    tensors = [*_tensors((*args, *kwargs.values()))]
    try:
        moved = {name: _meta(one) for name, one in kwargs.items() if not isinstance(one, torch.Generator)}
        if not tensors:
            moved["device"] = torch.device("meta")
        results = operator(*(_meta(one) for one in args), **moved)
    except Exception:  # no rule for shapes, or one that needs values
        return float(max((one.numel() * max(8, one.element_size()) for one in tensors), default=most))
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


# ------------------------------------------------------------------ the bytes of a call's results
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


def _of_matrices(call: Mapping[str, Any]) -> float:
    return float(call["mat1"].shape[0] * call["mat2"].shape[1] * call["mat1"].element_size())


def _of_norm(call: Mapping[str, Any]) -> float:
    """The input's own size, and a mean and a deviation of each row, channel or group."""
    x = call["input"]
    if "group" in call:
        groups = call["N"] * call["group"]
    else:
        groups = x.numel() // max(1, math.prod(call["normalized_shape"])) if "normalized_shape" in call else x.shape[1]
    return float(x.numel() * x.element_size() + 2 * groups * max(4, x.element_size()))


def _of_attention(call: Mapping[str, Any]) -> float:
    query = call["query"]
    rows = query.numel() // max(1, query.shape[-1])  # each has a sum
    return float(rows * (call["value"].shape[-1] * query.element_size() + max(4, query.element_size())))


_BY_CALL: dict[str, Callable[[Mapping[str, Any]], float]] = {
    # Their own rules for shapes are Python functions of torch, which take milliseconds.
    "addmm.default": _of_matrices,
    **dict.fromkeys((f"native_{kind}_norm.default" for kind in ("layer", "batch", "group")), _of_norm),
    "_scaled_dot_product_flash_attention_for_cpu.default": _of_attention,
    # Values decide how large the result is.
    **dict.fromkeys(("arange.default", "arange.start", "arange.start_step", "range.step", "range.default"), _range),
    "repeat_interleave.Tensor": _repeated,
    "bincount.default": _counts,
    "nonzero.default": _positions,
    "masked_select.default": _selected,
}


def _pivots(call: _Call) -> bool:
    """Rows to swap, 1 to n. A block of two rows has the negative of one row, twice."""
    table = call["pivots"]
    if not _within(table.abs(), 1, call["LD"].shape[-1]):
        return False
    return all(_in_pairs(row) for row in table.reshape(-1, table.shape[-1]).tolist())


def _in_pairs(row: list[int]) -> bool:
    blocks = [(number, len(list(same))) for number, same in itertools.groupby(row)]
    return all(number > 0 or count % 2 == 0 for number, count in blocks)


def _segments(call: _Call) -> bool:
    data, axis = call["data"], call.get("axis", 0)
    rows, lengths, offsets = data.shape[axis], call.get("lengths"), call.get("offsets")
    if offsets is not None:
        return _within(offsets, 0, rows) and bool((offsets.diff(dim=-1) >= 0).all())
    return lengths is None or (_within(lengths, 0, rows) and bool((lengths.sum(-1) <= rows).all()))


def _bags(call: _Call) -> bool:
    indices, offsets = call["indices"], call["offsets"]
    ordered = _within(offsets, 0, indices.numel()) and bool((offsets.diff() >= 0).all())
    # The first bag is written, whether there is one or not.
    return (
        ordered
        and offsets.numel() > bool(call.get("include_last_offset"))
        and _within(indices, 0, call["weight"].shape[0] - 1)
    )


def _classes(call: _Call) -> bool:
    return _within(call["targets"], 0, call["log_probs"].shape[-1] - 1)


def _sequences(call: _Call) -> bool:
    steps = call["input"].shape[1 if call["batch_first"] else 0]
    return _within(call["lengths"], 1, steps)


def _channels(call: _Call) -> bool:
    each = (call.get(name) for name in ("weight", "bias", "running_mean", "running_var"))
    return all(one is None or one.numel() == call["input"].shape[1] for one in each)


def _boxes(call: _Call) -> bool:
    """The first column says which image a box is in."""
    return _within(call["rois"][:, 0], 0, call["input"].shape[0] - 1)


_RULES: dict[str, Callable[[_Call], bool]] = {
    "aten::linalg_ldl_solve": _pivots,
    "aten::segment_reduce": _segments,
    "aten::_embedding_bag": _bags,
    "aten::_embedding_bag_forward_only": _bags,
    "aten::_ctc_loss": _classes,
    "aten::_pack_padded_sequence": _sequences,
    "aten::native_batch_norm": _channels,
    **dict.fromkeys((f"torchvision::{kind}roi_{name}" for kind in ("", "ps_") for name in ("align", "pool")), _boxes),
}


def _along(lowest: int = 0) -> Callable[[_Call], bool]:
    """The rule for an `index` along one axis. lowest: -1 where it may count from the end."""

    def rule(call: _Call) -> bool:
        sizes = call["self"].shape
        size = sizes[call["dim"]] if sizes else 1
        return _within(call["index"], lowest * size, size - 1)

    return rule


def _anywhere(call: _Call) -> bool:
    """take and put count through all elements."""
    count = call["self"].numel()
    return _within(call["index"], -count, count - 1)


def _rows(call: _Call) -> bool:
    return _within(call["indices"], 0, call["weight"].shape[0] - 1)


def _by_axis(call: _Call) -> bool:
    """`x[rows, columns]`; a mask stands for as many axes as it has."""
    axis, fit = 0, True
    for one in call["indices"]:
        mask = one is not None and one.dtype in (torch.bool, torch.uint8)
        if one is not None and not mask and axis < call["self"].dim():
            size = call["self"].shape[axis]
            fit = fit and _within(one, -size, size - 1)
        axis += one.dim() if mask else 1
    return fit


def _targets(call: _Call) -> bool:
    target = call["target"]
    classes = call["self"].shape[min(1, call["self"].dim() - 1)]
    return _within(target[target != call["ignore_index"]], 0, classes - 1)


def _probabilities(call: _Call) -> bool:
    return _within(call["self"], 0, 1)


def _true(call: _Call) -> bool:
    return bool(call["self"].any())


def _counted(call: _Call) -> bool:
    return _within(call["repeats"], 0, math.inf)


# Their kernels for GPUs assert these; those for the CPU raise an error of their own.
_ON_A_GPU: dict[str, Callable[[_Call], bool]] = {
    **dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "index_reduce"), _along()),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _along()),
    "index_fill": _along(-1),
    **dict.fromkeys(("take", "put"), _anywhere),
    "embedding": _rows,
    **dict.fromkeys(("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put"), _by_axis),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _targets),
    "binary_cross_entropy": _probabilities,
    "_assert_async": _true,
    "repeat_interleave": _counted,
}


def is_unchecked(operator: Any) -> bool:
    """Whether an operator reads positions that its C code does not check."""
    return _name(operator) in _RULES


def is_asserted(operator: Any) -> bool:
    """Whether a bad position of an operator ends the use of a GPU: see `check_positions`."""
    return _on_a_gpu(operator) is not None


def check_positions(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise IndexError where an operator gets positions outside of its operands."""
    rule = _RULES.get(_name(operator)) or _on_a_gpu(operator)
    given = {argument.name: argument.default_value for argument in operator._schema.arguments}
    if rule is not None and not rule({**given, **dict(zip(given, args, strict=False)), **kwargs}):
        raise IndexError(f"{_name(operator)} got positions outside of its operands")


def _name(operator: Any) -> str:
    schema = getattr(operator, "_schema", None)
    return "" if schema is None else str(schema.name)


def _on_a_gpu(operator: Any) -> Callable[[_Call], bool] | None:
    home, _, name = _name(operator).partition("::")
    return _ON_A_GPU.get(name.removesuffix("_")) if home == "aten" else None


def _within(values: torch.Tensor, lowest: float, highest: float) -> bool:
    return not values.numel() or bool((values >= lowest).all() and (values <= highest).all())
