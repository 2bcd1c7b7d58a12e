"""Refuses calls of operators whose C code would read outside of its operands: it does not look at positions.

    torch.segment_reduce(x, "sum", offsets=o)      with an offset beyond x's end, the process ends

Probes move whole numbers, and no exception comes from there. Operands are read by the names in `OpOverload._schema`; if
that moves, nothing is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_Call = Mapping[str, Any]  # a call's operands, by the names in the operator's schema


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
    "aten::_ctc_loss": _classes,
    "aten::_pack_padded_sequence": _sequences,
    "aten::native_batch_norm": _channels,
    "torchvision::roi_align": _boxes,
    "torchvision::roi_pool": _boxes,
    "torchvision::ps_roi_align": _boxes,
    "torchvision::ps_roi_pool": _boxes,
}


def is_unchecked(operator: Any) -> bool:
    """Whether an operator reads positions that its C code does not check."""
    schema = getattr(operator, "_schema", None)
    return schema is not None and schema.name in _RULES


def check_positions(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise IndexError where such an operator gets positions outside of its operands."""
    schema = operator._schema
    names = [argument.name for argument in schema.arguments]
    if not _RULES[schema.name]({**dict(zip(names, args, strict=False)), **kwargs}):
        raise IndexError(f"{schema.name} got positions outside of its operands")


def _within(values: torch.Tensor, lowest: int, highest: int) -> bool:
    return not values.numel() or bool((values >= lowest).all() and (values <= highest).all())
