"""Functions called by the names of their arguments, with `axis`, with `out`, as torch's own C functions take them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, sizes

ROWS = ({0: "n"},)
SOME = sizes(6, 2, 3, 9, 12, width=4)
FROM_ONE = sizes(6, 1, 2, 3, 9, 12, width=4)


@devious(SOME, ROWS)
def sums_by_axis(x: Tensor) -> Tensor:
    return torch.sum(input=x, axis=1) + torch.amax(input=x, dim=1) + x.mean(axis=-1) + torch.max(x, axis=1)[0]


@devious(SOME, ROWS)
def joined_by_axis(x: Tensor) -> Tensor:
    return torch.cat(tensors=[x, x], axis=0) + torch.concat((x, x), axis=0) + torch.vstack(tensors=(x, x))


@devious(SOME, ROWS)
def searched(x: Tensor) -> Tensor:
    edges = torch.linspace(-1, 1, 4)
    return torch.searchsorted(sorted_sequence=edges, input=x, side="right") + torch.bucketize(input=x, boundaries=edges)


@devious(SOME, ROWS)
def spread_and_differences(x: Tensor) -> Tensor:
    return (
        torch.quantile(input=x, q=0.25, dim=1)
        + torch.diff(input=x, n=2, dim=1).sum(1)
        + torch.var(x, axis=1, correction=0)
    )


@devious(SOME, ROWS)
def moved_by_name(x: Tensor) -> Tensor:
    return (
        torch.roll(input=x, shifts=2, dims=0)
        + torch.flip(input=x, dims=(0,))
        + torch.movedim(input=x, source=0, destination=1).mT
    )


@devious(SOME, ROWS)
def repeated_by_name(x: Tensor) -> Tensor:
    return (
        torch.repeat_interleave(input=x, repeats=2, dim=0)
        + x.repeat_interleave(2, dim=0)
        + torch.tile(input=x, dims=(2, 1))
    )


@devious(SOME, ROWS)
def products_by_name(x: Tensor) -> Tensor:
    c = torch.cross(input=x[:, :3], other=x[:, 1:], dim=1)
    return torch.matmul(input=x, other=x.mT).sum(1) + c.sum(1) + torch.kron(input=x[:, :1], other=x[:1]).sum()


@devious(SOME, ROWS)
def norms_by_name(x: Tensor) -> Tensor:
    return (
        torch.linalg.norm(input=x, ord=2, dim=1)
        + torch.linalg.vector_norm(x=x, ord=1, dim=1)
        + torch.norm(input=x, p=1, dim=1)
    )


@devious(SOME, ROWS)
def distances_by_name(x: Tensor) -> Tensor:
    return torch.cdist(x1=x, x2=x * 2, p=1.0).sum(1) + F.pairwise_distance(x1=x, x2=x.flip(0))


@devious(SOME, ROWS)
def limited_by_name(x: Tensor) -> Tensor:
    y = (
        torch.clamp(input=x, max=torch.tensor(0.5))
        + x.clip(min=-0.5)
        + torch.where(condition=x > 0, input=x, other=0.0)
    )
    return y + torch.clamp_min(input=x, min=0.1)


@devious(SOME, ROWS)
def resized_by_name(x: Tensor) -> Tensor:
    return (
        F.interpolate(input=x[None, None], size=(7, 4), mode="bilinear")[0, 0]
        + F.interpolate(x[None], scale_factor=2, mode="linear").sum()
    )


@devious(SOME, ROWS)
def cut_by_name(x: Tensor) -> Tensor:
    a, b = torch.tensor_split(input=x, sections=2, dim=0)
    c = torch.split(tensor=x, split_size_or_sections=2, dim=1)[0]
    return a.sum(0) - b.sum(0) + c.sum() + torch.narrow(input=x, dim=0, start=1, length=1)[0]


@devious(FROM_ONE, ROWS)
def filled_by_name(x: Tensor) -> Tensor:
    n = x.size(dim=0)
    grid = torch.meshgrid(torch.arange(end=n), torch.arange(start=0, end=4, step=1), indexing="ij")
    return x + torch.full(size=(n, 1), fill_value=2) + torch.linspace(start=0, end=1, steps=n)[:, None] + sum(grid)


@devious(SOME, ROWS)
def indices_by_name(x: Tensor) -> Tensor:
    index = torch.argsort(input=x, dim=0, descending=True, stable=True)
    gathered = torch.gather(input=x, dim=0, index=index) + torch.index_select(input=x, dim=0, index=index[:, 0])
    return (
        gathered
        + torch.scatter(input=x, dim=0, index=index, src=x * 2)
        + torch.masked_fill(input=x, mask=x > 1, value=0.0)
    )


@devious(SOME, ROWS)
def into_named_outputs(x: Tensor) -> Tensor:
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(x, 1, out=(values, places))
    total = torch.empty(0)
    torch.sum(x, dim=1, out=total)
    return values + places + total


@devious(SOME, ROWS)
def triangles_by_name(x: Tensor) -> Tensor:
    square = torch.einsum("ij,kj->ik", [x, x])
    return torch.tril(input=square, diagonal=-1) + torch.triu(square, 1) + torch.diag_embed(input=x[:, 0], offset=0)


@devious(SOME, ROWS)
def running_by_name(x: Tensor) -> Tensor:
    return (
        torch.cumsum(input=x, axis=0)
        + torch.cumprod(input=x, dim=0)
        + torch.logcumsumexp(input=x, dim=0)
        + torch.cummax(input=x, dim=0)[0]
    )


@devious(SOME, ROWS)
def signals_by_name(x: Tensor) -> Tensor:
    y = torch.fft.rfft(input=x, n=4, dim=1)
    return (
        torch.fft.irfft(input=y, n=4, dim=1)
        + torch.abs(input=y).sum(1, keepdim=True)
        + torch.trapezoid(y=x, dx=0.5, dim=1)[:, None]
    )
