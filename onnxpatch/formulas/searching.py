"""torch.searchsorted and torch.isin by a search tree, without comparing every value with every entry.

A table is split into blocks of 32 entries; the last entries of the blocks form a shorter table, which is split again. A
search reads one block for each level: a Gather, 32 comparisons and their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch.formulas.scans import blocks, last_of_blocks, one_more
from onnxpatch.formulas.symbolic import as_tensor

_WIDTH = 32
# Levels for a dynamic length. The top level is searched by comparing with all of it: enough for a million entries.
_LEVELS = 3
# dtypes that onnxruntime compares; others are widened first.
_COMPARED = (torch.float32, torch.float64, torch.int32, torch.int64)


def search(table: Tensor, values: Any, *, right: bool = False, length: int | None = None) -> Tensor:
    """torch.searchsorted(table, values, right=right), int64.

    table: (n,), or (..., n) with one row for each row of `values` (..., m); sorted along the last axis, without NaN.
    values: a tensor or a number; NaN comes after everything, as in torch.
    length: n, if the caller knows it. Under trace `table.shape` has tensors only.
    """
    if not isinstance(values, Tensor):
        values = torch.full((), values, dtype=table.dtype, device=table.device)
    table, values = _comparable(table), _comparable(values)
    if table.dim() == 1:
        return _places(table, values, right, length)
    rows = table.reshape([-1, table.shape[-1]])
    return _places(rows, values.reshape([-1, values.shape[-1]]), right, length).reshape(values.shape)


def contained(values: object, members: object, *, invert: bool = False) -> Tensor:
    """torch.isin(values, members): bool, in the shape of `values`."""
    members = members if isinstance(members, Tensor) else torch.as_tensor(members)
    values = values if isinstance(values, Tensor) else torch.as_tensor(values, device=members.device)
    dtype = torch.promote_types(values.dtype, members.dtype)
    values, members = _comparable(values.to(dtype)), _comparable(members.to(dtype)).reshape(-1)
    ordered, known = _ordered(members)
    # A value beyond all members has the place after the last.
    place = torch.minimum(search(ordered, values), as_tensor(ordered.shape[0], torch.int64, ordered.device) - 1)
    found = (ordered[place] == values) & (place < known)
    return ~found if invert else found


def _ordered(members: Tensor) -> tuple[Tensor, Tensor]:
    """(the members sorted, with one more entry at the end; how many of them are not NaN).

    NaN equals nothing and breaks the sort: it is replaced by the largest number, after the others.
    """
    largest = _behind(members.dtype, torch.inf)
    known = torch.ones_like(members, dtype=torch.int64).sum()
    if members.is_floating_point():
        known = (members == members).to(torch.int64).sum()
        members = torch.where(members == members, members, largest)
    # There is always an entry to compare with, even for a value beyond all members, or without any member.
    members = one_more(members, largest)
    return members.topk(members.shape[0], largest=False, sorted=True)[0], known


@dataclass(frozen=True)
class _Tree:
    """levels: blocks ([rows,] count, 32), those of the table first. top: the last entries of the last ones."""

    levels: list[Tensor]
    top: Tensor


def _places(table: Tensor, values: Tensor, right: bool, length: object) -> Tensor:
    """searchsorted for a table (n,) and values of any shape, or a table (rows, n) and values (rows, m)."""
    length = table.shape[-1] if length is None else length
    tree = _tree(table, length)
    place = _count(tree.top if table.dim() == 1 else tree.top.unsqueeze(1), values, right)
    # From the shortest table to the table itself.
    for level in reversed(tree.levels):
        place = place * _WIDTH + _count(_rows(level, place), values, right)
    length = as_tensor(length, torch.int64, table.device)
    if values.is_floating_point():
        # NaN comes after all entries, wherever the comparisons with it, all false, have led.
        return torch.where(values == values, place, length)
    return torch.minimum(place, length)


def _tree(table: Tensor, length: Any) -> _Tree:
    """The tree of a table. Blocks are padded with NaN or the largest number, which come after every value."""
    filling = _behind(table.dtype, torch.nan)
    levels: list[Tensor] = []
    while _deeper(length, len(levels)):
        levels.append(blocks(table, _WIDTH, filling))
        table, length = last_of_blocks(table, _WIDTH), length // _WIDTH
    return _Tree(levels, one_more(table, filling))


def _deeper(length: object, levels: int) -> bool:
    return length > 2 * _WIDTH if isinstance(length, int) else levels < _LEVELS


def _rows(level: Tensor, place: Tensor) -> Tensor:
    """The blocks at `place`, (*place.shape, 32)."""
    count = as_tensor(level.shape[-2], torch.int64, level.device)
    if not level.is_floating_point():  # a value equal to the padding may end beyond the table
        place = torch.minimum(place, count - 1)
    if level.dim() == 2:
        # It exports as one Gather of whole rows, whatever the rank of `place` is.
        return F.embedding(place, level)
    place = place + (torch.arange(level.shape[0], device=level.device) * count).unsqueeze(1)
    return F.embedding(place, level.reshape([-1, _WIDTH]))


def _count(entries: Tensor, values: Tensor, right: bool) -> Tensor:
    """How many of the entries (..., k) come before each value (...)."""
    values = values.unsqueeze(-1)
    before = entries <= values if right else entries < values
    # ONNX's ReduceSum takes no bools. float32 counts exactly up to 2^24.
    return before.to(torch.float32).sum(-1).to(torch.int64)


def _comparable(x: Tensor) -> Tensor:
    if x.dtype in _COMPARED:
        return x
    return x.float() if x.is_floating_point() else x.to(torch.int32)


def _behind(dtype: torch.dtype, number: float) -> float:
    return number if dtype.is_floating_point else torch.iinfo(dtype).max
