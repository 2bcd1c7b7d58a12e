"""Functions of matrices, in operations that both exporters can translate; factorizations of small ones are unrolled.

Each has the arguments and the result of the torch function of its name. Where n is static and the number of nodes grows
with it, matrices are (..., n, n), or (..., m, n) for `qr`, and everything is computed in float64, since the formulas
that unroll well lose more digits than LAPACK's. No product has a transposed operand: onnxruntime up to 1.23 makes one
node of the two, for which it has no kernel in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import counted


def transposed(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


def rot90(x: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    first, second = dims
    # Functions, so that the nodes of one form only are recorded.
    turns: dict[int, Callable[[], Tensor]] = {
        0: x.clone,
        1: lambda: x.flip(second).transpose(first, second),
        2: lambda: x.flip((first, second)),
        3: lambda: x.flip(first).transpose(first, second),
    }
    return turns[k % 4]()


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    if offset:
        zeros = torch.zeros_like(x[..., :1]).expand([*x.shape[:-1], abs(offset)])
        x = torch.cat((zeros, x) if offset > 0 else (x, zeros), -1)
    ticks = torch.arange(x.shape[-1], device=x.device)
    # An element is on the diagonal where two places agree: nothing is written by index.
    columns = torch.where(ticks[:, None] + offset == ticks, x.unsqueeze(-2), torch.zeros_like(x.unsqueeze(-2)))
    return columns.movedim((-2, -1), (dim1, dim2))


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = x.movedim((dim1, dim2), (-2, -1))
    if x.stride(-1) > x.stride(-2):
        x, offset = x.transpose(-1, -2), -offset
    row, column = max(-offset, 0), max(offset, 0)
    columns = x.shape[-1]
    x = x[..., row : row + x[..., column:].shape[-1], :]
    # Along the elements in order, one row and one column further is this many elements further.
    return x.flatten(-2)[..., column :: columns + 1]


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    return diag_embed(x, diagonal) if x.dim() == 1 else _diagonal(x, diagonal)


_diagonal = diagonal  # where an argument has that name


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    return diag_embed(x.flatten(), offset)


def trace(x: Tensor) -> Tensor:
    return diagonal(x).sum()


def block_diag(*blocks: Tensor) -> Tensor:
    blocks = tuple(block.reshape([1] * (2 - block.dim()) + list(block.shape)) for block in blocks)
    width = sum(block.shape[1] for block in blocks)
    rows, before = [], 0
    for block in blocks:
        left = block.new_zeros([block.shape[0], before])
        before = before + block.shape[1]
        rows.append(torch.cat((left, block, block.new_zeros([block.shape[0], width - before])), 1))
    return torch.cat(rows, 0)


def kron(x: Tensor, y: Tensor) -> Tensor:
    rank = max(x.dim(), y.dim())
    x, y = (t.reshape([1] * (rank - t.dim()) + list(t.shape)) for t in (x, y))
    # Axes of x and y in turn, [a1, 1, a2, 1] and [1, b1, 1, b2]; each pair becomes one axis below.
    for axis in range(rank):
        x, y = x.unsqueeze(2 * axis + 1), y.unsqueeze(2 * axis)
    product = x * y
    for axis in range(rank):
        product = product.flatten(axis, axis + 1)
    return product


def matrix_power(x: Tensor, n: int) -> Tensor:
    if n < 0:
        return matrix_power(torch.linalg.inv(x), -n)
    if n == 0:
        # A copy: expand alone would give all matrices one storage, and a write into one would be in all.
        return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x).clone()
    return functools.reduce(torch.matmul, [x] * n)


def cov(x: Tensor, *, correction: int = 1) -> Tensor:
    centred, total = _centred(x, correction)
    return (torch.matmul(centred, centred.transpose(0, 1)) / total).squeeze()


def corrcoef(x: Tensor) -> Tensor:
    centred, total = _centred(x, 1)
    spread = torch.matmul(centred, centred.transpose(0, 1)) / total
    # Not torch.diagonal(spread): of a dynamic size the TorchScript exporter writes it in float32, whatever it is of.
    scale = torch.sqrt((centred * centred).sum(1) / total)
    return (spread / scale[:, None] / scale).clamp(-1, 1).squeeze()


def _centred(x: Tensor, correction: int) -> tuple[Tensor, Tensor]:
    """(The rows less their means, how many columns less the correction.)"""
    x = x if x.dim() == 2 else x.unsqueeze(0)
    # Counted in the graph: the number of columns may be dynamic.
    return x - x.mean(1, keepdim=True), torch.ones_like(x[0]).sum() - correction


def cartesian_prod(*axes: Tensor) -> Tensor:
    grids = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], -1) if len(axes) > 1 else axes[0]


def inner(x: Tensor, y: Tensor) -> Tensor:
    return torch.tensordot(x, y, ([x.dim() - 1], [y.dim() - 1])) if x.dim() and y.dim() else x * y


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    axes = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    length = torch.linalg.vector_norm(x, p, axes, keepdim=True)
    return torch.where(length > maxnorm, x * (maxnorm / (length + 1e-7)), x)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    pairs = torch.triu(torch.ones_like(x[:, :1] == x[:, 0]), 1)
    return torch.cdist(x, x, p).masked_select(pairs)


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        x, indices, dim = x.flatten(), indices.flatten(), 0
    axis = dim % x.dim()
    # Eager counts on from the start beyond the end.
    indices = torch.remainder(indices, counted(x.shape[axis], x))
    # All axes but `dim` broadcast; ONNX's GatherElements does not broadcast by itself.
    shape = torch.broadcast_shapes(*([1 if i == axis else n for i, n in enumerate(t.shape)] for t in (x, indices)))
    widths = ([t.shape[axis] if i == axis else n for i, n in enumerate(shape)] for t in (x, indices))
    return torch.gather(*(x.expand(next(widths)), axis, indices.expand(next(widths))))


def multi_dot(matrices: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.matmul, matrices)


def chain_matmul(*matrices: Tensor) -> Tensor:
    return multi_dot(matrices)
