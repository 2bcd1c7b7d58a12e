"""Copies, splits and joins that the exporters lack, and what writes into a part: each in functions that they have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas.tries import integers, matrices, numbers, pairs

_lacking = functools.partial(missing, exporters=("trace",))


def _copies(x: Tensor) -> tuple[Tensor, ...]:
    one = torch.permute_copy(x, (2, 0, 1)) + torch.transpose_copy(x, 0, 2).transpose(1, 2)
    two = torch.unsqueeze_copy(x, 1).squeeze(1) + torch.expand_copy(x[:1], x.shape) + torch.narrow_copy(x, 0, 0, 1)
    three = torch.diagonal_copy(x, 0, 0, 1), torch.t_copy(x[0]), torch.squeeze_copy(x[:, :1], 1), torch.alias_copy(x)
    return one, two, *three, torch.view_copy(x, (-1,)), torch.unfold_copy(x, 2, 2, 1)


@op(
    "alias_copy", "diagonal_copy", "expand_copy", "narrow_copy", "permute_copy", "split_with_sizes_copy",
    "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy", "unsqueeze_copy", "view_copy",
    name="copies", why=_lacking("aten::permute_copy", "aten::transpose_copy", "aten::unsqueeze_copy"),
    tries=lambda b, n: torch.randn(b, n, 4), case=_copies,
)  # fmt: skip
def copied(original: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """What the view of the same name has: a graph knows no memory."""
    name = original.__name__.removesuffix("_copy")
    return input.clone() if name == "alias" else getattr(torch.Tensor, name)(input, *args, **kwargs)


op("positive", why=_lacking("aten::positive"), tries=numbers, case=lambda x: (+x, x.positive()), to=lambda x: x.clone())
op("ravel", why=_lacking("aten::ravel"), tries=matrices, to=lambda x: x.reshape(-1))
op("argwhere", why=_lacking("aten::argwhere"), tries=integers, to=lambda x: x.nonzero())
op("msort", why=_lacking("aten::msort"), tries=numbers, to=lambda x: torch.sort(x, dim=0).values)
op("isreal", why=_lacking("aten::isreal"), tries=numbers, to=lambda x: torch.ones_like(x, dtype=torch.bool))
op("dist", why=_lacking("aten::dist"), tries=pairs, to=lambda x, y, p=2: torch.linalg.vector_norm(x - y, p))


@op("real", why=_lacking("aten::real"), tries=numbers, case=lambda x: torch.real(x))
def real(input: Tensor) -> Tensor:
    """Itself."""
    return NotImplemented if input.is_complex() else input.clone()


@op("count_nonzero", why=_lacking("aten::count_nonzero"), tries=integers,
    case=lambda x: (torch.count_nonzero(x, 1), x.count_nonzero(dim=(0, 1)), (x > 0).count_nonzero()))  # fmt: skip
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many numbers are not 0, along the axes or in all."""
    counted = (input != 0).to(torch.int64)
    return counted.sum() if dim is None else counted.sum(dim)


def _repeats(b: int, n: int) -> Tensor:
    return torch.randint(0, 3, (b, n))


@op("unique_consecutive", why=_lacking("aten::unique_consecutive"), tries=_repeats,
    case=lambda x: (x.unique_consecutive(), *torch.unique_consecutive(x, True, True)))  # fmt: skip
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The first of each run of equal numbers, where each number's run is, and how long the runs are."""
    if dim is not None:
        return NotImplemented
    x = input.flatten()
    first = torch.cat((torch.ones_like(x[:1], dtype=torch.bool), x[1:] != x[:-1]))
    found: tuple[Tensor, ...] = (x[first],)
    if return_inverse:
        found += ((torch.cumsum(first.to(torch.int64), 0) - 1).reshape(input.shape),)
    if return_counts:
        starts = torch.cat((first.nonzero()[:, 0], torch.ones_like(x, dtype=torch.int64).sum().reshape(1)))
        found += (starts[1:] - starts[:-1],)
    return found if len(found) > 1 else found[0]


# ------------------------------------------------------------------ split and join
def _parts(x: Tensor, at: Any, axis: int) -> Any:
    return torch.tensor_split(x, at, axis)


op("vsplit", why=_lacking("aten::vsplit"), tries=lambda n: torch.randn(4, n), case=lambda x: torch.vsplit(x, 2),
   to=lambda x, at: _parts(x, at, 0))  # fmt: skip
op("dsplit", why=_lacking("aten::dsplit"), tries=lambda n: torch.randn(n, 2, 6), case=lambda x: torch.dsplit(x, [1, 4]),
   to=lambda x, at: _parts(x, at, 2))  # fmt: skip
op("hsplit", why=_lacking("aten::hsplit"), tries=lambda n: torch.randn(n, 6), case=lambda x: torch.hsplit(x, 3),
   to=lambda x, at: _parts(x, at, 0 if x.dim() == 1 else 1))  # fmt: skip


def _columns(*tensors: Tensor) -> list[Tensor]:
    return [x.reshape(-1, 1) if x.dim() < 2 else x for x in tensors]


def _slices(*tensors: Tensor) -> list[Tensor]:
    return [x.reshape(1, -1, 1) if x.dim() < 2 else x.unsqueeze(2) if x.dim() == 2 else x for x in tensors]


op("column_stack", why=_lacking("aten::column_stack"), tries=numbers, to=lambda xs: torch.cat(_columns(*xs), 1),
   case=lambda x: torch.column_stack((x, x[:, 0])))  # fmt: skip
op("dstack", why=_lacking("aten::dstack"), tries=numbers, to=lambda xs: torch.cat(_slices(*xs), 2),
   case=lambda x: (torch.dstack((x, x + 1)), torch.dstack((x[0], x[0] * 2))))  # fmt: skip


# ------------------------------------------------------------------ write into a part
def _along(x: Tensor, dim: int) -> tuple[int, Tensor]:
    """The axis from the front, and the places along it, which broadcast with x."""
    axis = dim % x.dim()
    return axis, torch.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.dim())])


@op("select_scatter", why=_lacking("aten::select_scatter"), tries=matrices,
    case=lambda x: (torch.select_scatter(x, x[:, 0] * 2, 1, -1), x.select_scatter(x[0] + 1, 0, 0)))  # fmt: skip
def select_scatter(input: Tensor, src: Tensor, dim: int, index: Any) -> Tensor:
    """`input` with `src` at one place along the axis."""
    axis, places = _along(input, dim)
    at = index + input.shape[axis] if isinstance(index, int) and index < 0 else index
    return torch.where(places == at, src.unsqueeze(axis), input)


def _written(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.slice_scatter(x[:, 1:3] * 2, 1, 1, 3), torch.slice_scatter(x, x[:, ::2] - 1, -1, step=2)


@op("slice_scatter", why=_lacking("aten::slice_scatter"), tries=lambda b, n: torch.randn(b, n + 3), case=_written)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """`input` with `src` in a slice along the axis."""
    axis, places = _along(input, dim)
    size = input.shape[axis]
    start = 0 if start is None else start
    start = start + size if isinstance(start, int) and start < 0 else start
    end = size if end is None else end
    end = end + size if isinstance(end, int) and end < 0 else end
    apart = places - start
    inside = (apart >= 0) & (places < end) & (torch.remainder(apart, step) == 0)
    index = torch.div(apart, step, rounding_mode="floor")
    index = torch.where(inside, index, torch.zeros_like(index)).reshape(-1)
    return torch.where(inside, src.index_select(axis, index), input)


# ------------------------------------------------------------------ sums of products
op("addmv", why=_lacking("aten::addmv"), tries=lambda b, n: (torch.randn(b), torch.randn(b, n), torch.randn(n)),
   to=lambda x, a, v, *, beta=1, alpha=1: beta * x + alpha * (a @ v))  # fmt: skip
op("addr", why=_lacking("aten::addr"), tries=lambda b, n: (torch.randn(b, n), torch.randn(b), torch.randn(n)),
   to=lambda x, a, v, *, beta=1, alpha=1: beta * x + alpha * (a[:, None] * v))  # fmt: skip
op("addbmm", why=_lacking("aten::addbmm"),
   tries=lambda b, n: (torch.randn(n, 4), torch.randn(b, n, 3), torch.randn(b, 3, 4)),
   to=lambda x, a, b, *, beta=1, alpha=1: beta * x + alpha * (a @ b).sum(0))  # fmt: skip
op("linalg.vecdot", why=_lacking("aten::linalg_vecdot"), tries=pairs, to=lambda x, y, *, dim=-1: (x * y).sum(dim))
