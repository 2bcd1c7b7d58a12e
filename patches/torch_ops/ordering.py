"""Sorting, searching, membership, runs of equal numbers and places of others than 0.

torch.searchsorted and torch.isin halve the part of a table in which a value may be, in a loop of the graph, without
comparing every value with every entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op, running_model, untraced, while_loop
from onnxpatch.formulas.scans import one_more
from onnxpatch.formulas.symbolic import as_tensor, traced_from, tracing_paused
from onnxpatch.patching.proof import integers, numbers


def _sorted(x: Tensor) -> tuple[Tensor, ...]:
    values, order = torch.sort(x, dim=1, stable=True)
    again = torch.sort(x.abs(), dim=1, stable=False).values, torch.sort(x > 0, dim=1).values
    return values, torch.argsort(x[..., 0], dim=-1, descending=True, stable=True) + order[..., 0], *again


@op(
    "sort",
    "argsort",
    name="stable-sort",
    why="ONNX export of operator Sort, Out parameter is not supported; No ONNX function found for aten.sort.stable",
    reason="aten.sort|operator Sort",
    link="https://github.com/pytorch/pytorch/issues/108520",
    # Rounded, so that there are equal entries, whose order a stable sort keeps.
    tries=lambda b, n: torch.randn(b, n, 3).round(),
    case=_sorted,
)
def sort(
    original: Callable[..., Tensor], input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> object:
    """sort(stable=True) as TopK over all entries. ONNX's TopK keeps the order of equal entries; torch.topk does not.

    stable=False is left out: torch's default, which exporters know. TopK takes no flags: they are sorted as numbers.
    """
    flags = input.dtype == torch.bool
    if not stable and not flags:
        return NotImplemented if stable is None else original(input, dim, descending)
    numbers = input.to(torch.int32) if flags else input
    values, order = numbers.topk(input.shape[dim], dim=dim, largest=descending, sorted=True)
    return order if "argsort" in original.__name__ else torch.return_types.sort((values.to(input.dtype), order))


class _Search(torch.nn.Module):
    bins: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bins", torch.linspace(-2, 2, 9))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        own = torch.searchsorted(x.sort(-1).values, x.round(), right=True)
        return torch.searchsorted(self.bins, x.round()), own, torch.bucketize(x.round(), self.bins, right=True)


@op(
    "searchsorted",
    "bucketize",
    why="Exporting the operator 'aten::searchsorted' to ONNX is not supported; nor aten.bucketize",
    reason="aten.searchsorted|aten::searchsorted",
    link="https://github.com/pytorch/pytorch/issues/79503",
    tries=lambda b, n: torch.randn(b, n, 3),
    case=_Search,
)
def searchsorted(
    sorted_sequence: object = None,
    input: object = None,
    *,
    boundaries: Any = None,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Counts the boundaries before each value."""
    if boundaries is None:
        boundaries, values = sorted_sequence, input
    else:  # bucketize: the values are the first argument
        values = sorted_sequence
    # torch.searchsorted takes a Python number, too.
    values = torch.as_tensor(values, device=boundaries.device)
    if sorter is not None:
        # The order in which the table is sorted is given apart from it.
        boundaries = boundaries.gather(-1, sorter)
    right = right or side == "right"
    found = search(boundaries, values, right=right, length=_stored_length(boundaries))
    return found.to(torch.int32) if out_int32 else found


def _stored_length(table: Tensor) -> int | None:
    """The length of a table that is a constant, a parameter or a buffer; None for others, and where sizes cut it.
    Under trace sizes are tensors."""
    running = running_model() if exporting() == "trace" else None
    if running is None or not traced_from(table, running.tensors.values(), sizes=False):
        return None
    with tracing_paused():
        return int(table.shape[-1])


@op(
    "isin",
    name="membership",
    why=missing("aten::isin"),
    reason="aten.searchsorted|aten.isin|aten::isin",
    tries=lambda n, m: (torch.randint(9, (n, 3)), torch.randint(9, (m,))),
    sizes=((4, 3), (7, 5), (1, 1)),
    case=lambda x, members: (torch.isin(x, members), torch.isin(x, torch.tensor([1, 7]), invert=True)),
)
def isin(elements: object, test_elements: object, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Takes O((values + members) log(members)); torch.isin exported plainly takes their product. Few fixed members are
    compared one by one."""
    return contained(elements, test_elements, invert=invert)


op("argwhere", why=untraced("aten::argwhere"), tries=integers, to=lambda x: x.nonzero())
op("msort", why=untraced("aten::msort"), exporters=("dynamo", "trace"), reason="msort|TopK", tries=numbers,
   beside=("stable-sort",), case=lambda x: (x.msort(), torch.msort(x > 0)),
   to=lambda x: torch.sort(x, dim=0).values)  # fmt: skip


@op(
    "unique",
    why="torch.unique(sorted=False) comes out in the order of the first ones: eager's order is not defined; "
    "return_inverse comes out flat",
    reason="relative error|shape",
    exporters=("trace",),
    tries=lambda b, n: torch.randint(-9, 9, (b, n)) * 0.5,
    case=lambda x: (torch.unique(x, sorted=False), *x.unique(return_inverse=True)),
)
def unique(
    original: Callable[..., Any], input: Tensor, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False, dim: int | None = None,
) -> Any:  # fmt: skip
    """Sorted in any case, with places in the shape of the input."""
    found = original(input, True, return_inverse, return_counts, dim)
    return (found[0], found[1].reshape(input.shape), *found[2:]) if return_inverse and dim is None else found


def _repeats(b: int, n: int) -> Tensor:
    return torch.randint(0, 3, (b, n))


@op("unique_consecutive", why=missing("aten::unique_consecutive"), reason="unique_consecutive", tries=_repeats,
    case=lambda x: (x.float().unique_consecutive(), *torch.unique_consecutive(x.float(), True, True)))  # fmt: skip
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal numbers, where each number's run is, and how long the runs are."""
    x = input.flatten() if dim is None else input.movedim(dim, 0)
    rows = x if x.dim() == 1 else x.reshape([x.shape[0], -1])
    other = rows[1:] != rows[:-1]
    first = torch.cat((torch.ones_like(rows[:1], dtype=torch.bool), other))
    first = first if x.dim() == 1 else first.any(1)
    found: tuple[Tensor, ...] = (x[first] if dim is None else x[first].movedim(0, dim),)
    if return_inverse:
        place = torch.cumsum(first.to(torch.int64), 0) - 1
        found += (place.reshape(input.shape) if dim is None else place,)
    if return_counts:
        starts = torch.cat((first.nonzero()[:, 0], torch.ones_like(first, dtype=torch.int64).sum().reshape(1)))
        found += (starts[1:] - starts[:-1],)
    return found if len(found) > 1 else found[0]


@op(
    "nonzero_static",
    why=missing("aten::nonzero_static"),
    tries=lambda b, n: torch.randint(0, 2, (b, n)),
    case=lambda x: (torch.nonzero_static(x, size=7), x.nonzero_static(size=2, fill_value=5)),
)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first places that are not 0, filled up with a number."""
    found = input.nonzero()
    return torch.cat((found, found.new_full((size, input.dim()), fill_value)))[:size]


# ------------------------------------------------------------------ search
_FEW = 8  # members that are compared with each value one by one
_SHORT = 32  # entries of a table that are all compared with each value
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
    length = _stored_length(members) or members.shape[0]
    if isinstance(length, int) and 0 < length <= _FEW:
        found = functools.reduce(torch.logical_or, [values == members[place] for place in range(length)])
        return ~found if invert else found
    ordered, known = _ordered(members)
    # A value beyond all members has the place after the last.
    after = length + 1 if isinstance(length, int) else None
    flat = values if values.dim() == 1 else values.reshape([-1])
    place = search(ordered, flat, length=after)
    place = torch.minimum(place, as_tensor(ordered.shape[0], torch.int64, ordered.device) - 1)
    found = (ordered.gather(0, place) == flat) & (place < known)
    found = found if values.dim() == 1 else found.reshape(values.shape)
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


def _places(table: Tensor, values: Tensor, right: bool, length: Any) -> Tensor:
    """searchsorted for a table (n,) and values of any shape, or a table (rows, n) and values (rows, m)."""
    length = table.shape[-1] if length is None else length
    if isinstance(length, int) and length <= _SHORT:
        behind = _behind_value(table if table.dim() == 1 else table.unsqueeze(1), values.unsqueeze(-1), right)
        return (~behind).to(torch.float32).sum(-1).to(torch.int64)  # ONNX's ReduceSum takes no bools
    return _halved(table, values, right, as_tensor(length, torch.int64, table.device))


def _halved(table: Tensor, values: Tensor, right: bool, count: Tensor) -> Tensor:
    """The same by halving the part of the table in which each value may be; all parts are of one length."""
    first = torch.full_like(values, -1, dtype=torch.int64)
    if table.dim() == 2:
        first = first + (torch.arange(table.shape[0], device=table.device) * count).unsqueeze(1)
    # For single numbers, onnxruntime's GatherElements takes a tenth of its Gather; it wants one dimension.
    entries, flat, start = (x if x.dim() == 1 else x.reshape([-1]) for x in (table, values, first))

    @while_loop(lambda last, left: left > 0)
    def run(last: Tensor, left: Tensor) -> tuple[Tensor, ...]:
        """last: the last entry that is known to come before the value. left: how many after it may, too."""
        rest = (left.double() * 0.5).to(torch.int64)  # fewer nodes than a division
        middle = last + (left - rest)
        return torch.where(_behind_value(entries.gather(0, middle), flat, right), last, middle), rest

    found = run(start, count)[0] - start
    return found if values.dim() == 1 else found.reshape(values.shape)


def _behind_value(entries: Tensor, values: Tensor, right: bool) -> Tensor:
    """Where an entry does not come before the value: none does so for NaN, which comes after all, as in torch."""
    return entries > values if right else entries >= values


def _comparable(x: Tensor) -> Tensor:
    if x.dtype in _COMPARED:
        return x
    return x.float() if x.is_floating_point() else x.to(torch.int32)


def _behind(dtype: torch.dtype, number: float) -> float:
    return number if dtype.is_floating_point else torch.iinfo(dtype).max
