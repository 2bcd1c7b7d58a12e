"""Sorting, searching, membership, runs of equal numbers and places of others than 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, missing, op, running_model, untraced
from onnxpatch.formulas.proof_cases import integers, numbers
from onnxpatch.formulas.searching import contained, search
from onnxpatch.formulas.symbolic import traced_from, tracing_paused


def _sorted(x: Tensor) -> tuple[Tensor, ...]:
    values, order = torch.sort(x, dim=1, stable=True)
    again = torch.sort(x.abs(), dim=1, stable=False).values
    return values, torch.argsort(x[..., 0], dim=-1, descending=True, stable=True) + order[..., 0], again


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

    stable=False is left out: torch's default, which exporters know.
    """
    if not stable:
        return NotImplemented if stable is None else original(input, dim, descending)
    found = input.topk(input.shape[dim], dim=dim, largest=descending, sorted=True)
    return found[1] if "argsort" in original.__name__ else torch.return_types.sort(found)


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
    """Counts the boundaries before each value, by a search tree."""
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


def _stored_length(boundaries: Tensor) -> int | None:
    """The length of boundaries that are a parameter or buffer; None for others. Under trace sizes are tensors."""
    running = running_model() if exporting() == "trace" else None
    if running is None or not traced_from(boundaries, running.tensors.values()):
        return None
    with tracing_paused():
        return int(boundaries.shape[-1])


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
    """Takes O((values + members) log(members)); torch.isin exported plainly takes their product."""
    return contained(elements, test_elements, invert=invert)


op("argwhere", why=untraced("aten::argwhere"), tries=integers, to=lambda x: x.nonzero())


op("msort", why=untraced("aten::msort"), tries=numbers, to=lambda x: torch.sort(x, dim=0).values)


op(
    "unique",
    why="torch.unique(sorted=False) comes out in the order of the first ones: eager's order is not defined",
    reason="relative error",
    exporters=("trace",),
    tries=lambda b, n: torch.randint(-9, 9, (b, n)) * 0.5,
    case=lambda x: torch.unique(x, sorted=False),
    to=lambda original, input, sorted=True, return_inverse=False, return_counts=False, dim=None: (
        NotImplemented if sorted else original(input, True, return_inverse, return_counts, dim)
    ),
)


def _repeats(b: int, n: int) -> Tensor:
    return torch.randint(0, 3, (b, n))


@op("unique_consecutive", why=missing("aten::unique_consecutive"), reason="unique_consecutive", tries=_repeats,
    case=lambda x: (x.float().unique_consecutive(), *torch.unique_consecutive(x.float(), True, True)))  # fmt: skip
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal numbers, where each number's run is, and how long the runs are."""
    x = input.flatten() if dim is None else input.movedim(dim, 0)
    rows = x.reshape([x.shape[0], -1])
    other = (rows[1:] != rows[:-1]).any(1)
    first = torch.cat((torch.ones_like(rows[:1, 0], dtype=torch.bool), other))
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
