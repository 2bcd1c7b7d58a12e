"""Functions whose translations lose all digits where numbers are small, or are infinite where they are large."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op
from onnxpatch.formulas import elementary
from onnxpatch.formulas.losses import reduced

_DIGITS = "relative error|non-finite values differ"
_SIGMOID = "non-finite values differ: it is exported as log(sigmoid(x)); sigmoid is 0 below -18 in onnxruntime"


def _rows(n: int) -> Tensor:
    return torch.linspace(-0.9, 0.7, 8 * n).reshape(n, 8)


def _pairs(n: int) -> tuple[Tensor, Tensor]:
    return _rows(n), _rows(n).roll(3)


def _at_magnitudes(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """A proof's case: numbers from a millionth to a hundred, each magnitude an output by itself."""

    def computed(*operands: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(*(x * 10.0**power for x in operands)) for power in (-6, -5, 0, 2))

    return computed


@op(
    "log1p",
    why="relative error 0.05 at 1e-6: log1p is exported as log(1 + x), which has no digits of a small x",
    tries=_rows,
    case=_at_magnitudes(lambda x: torch.log1p(x.abs())),
    reason=_DIGITS,
)
def log1p(input: Tensor) -> Tensor:
    """log(1 + x), of a floating-point x."""
    return elementary.log1p(input) if input.is_floating_point() else NotImplemented


@op(
    "expm1",
    why="aten::expm1 is not supported by trace; relative error 0.05 at 1e-6: dynamo has exp(x) - 1",
    tries=_rows,
    case=_at_magnitudes(torch.expm1),
    reason=f"aten::expm1|{_DIGITS}",
)
def expm1(input: Tensor) -> Tensor:
    """exp(x) - 1, of a floating-point x."""
    if not input.is_floating_point():
        return NotImplemented
    return elementary.expm1(input)


@op("asinh", "arcsinh", why=missing("aten::asinh", exporters=("trace",)), tries=_rows, case=_at_magnitudes(torch.asinh))
def asinh(input: Tensor) -> Tensor:
    """The number whose hyperbolic sine is x, of a floating-point x."""
    if not input.is_floating_point():
        return NotImplemented
    # Of |x|: for a negative x the sum would cancel. Beyond 1e4 the root is |x|, and a square might be infinite.
    size = input.abs()
    near = size.clamp(max=1e4)
    square = near * near
    found = elementary.log1p(near + square / (1 + torch.sqrt(1 + square)))
    return torch.sign(input) * torch.where(size > near, torch.log(size) + math.log(2), found)


@op("logsigmoid", why=_SIGMOID, tries=_rows, case=_at_magnitudes(torch.nn.functional.logsigmoid), reason=_DIGITS)
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x)))."""
    return -elementary.softplus(-input)


def _losses(x: Tensor, y: Tensor) -> Tensor:
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    likely, more = y.sigmoid(), y[0].abs() + 1
    return torch.stack((loss(x, likely), loss(-x, likely, y.abs(), pos_weight=more, reduction="sum")))


@op(
    "nn.functional.binary_cross_entropy_with_logits",
    name="bce-with-logits",
    why=_SIGMOID,
    tries=_pairs,
    case=_at_magnitudes(_losses),
    reason=_DIGITS,
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: object = None,
    reduce: object = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The loss as torch computes it, with softplus in place of the logarithm of sigmoid."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    below = elementary.softplus(-input)
    below = below if pos_weight is None else below * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input + below
    return reduced(loss if weight is None else loss * weight, reduction)


@op(
    "multilabel_soft_margin_loss",
    why=_SIGMOID,
    tries=_pairs,
    case=_at_magnitudes(lambda x, y: torch.nn.functional.multilabel_soft_margin_loss(x, (y > 0).float())),
    reason=_DIGITS,
)
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: object = None,
    reduce: object = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the classes, which are on the last axis, with softplus in place of the logarithm of sigmoid."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    # softplus(x) is x + softplus(-x).
    loss = (1 - target) * input + elementary.softplus(-input)
    return reduced((loss if weight is None else loss * weight).mean(-1), reduction)


@op(
    "cosine_similarity",
    why="relative error 0.9 for rows of length 1e-5: eps bounds the product of both lengths in the graph, and each of "
    "them in eager",
    tries=_pairs,
    case=_at_magnitudes(lambda x, y: torch.cosine_similarity(x, y[:1], -1)),
    exporters=("trace",),
    reason=_DIGITS,
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The product of both rows, divided by the length of each, or `eps`."""
    axis = dim % (rank := max(x1.dim(), x2.dim())) - rank
    if not all(x.dim() >= -axis for x in (x1, x2)) or x1.shape[axis] != x2.shape[axis]:
        x1, x2 = x1 + torch.zeros_like(x2), x2 + torch.zeros_like(x1)  # one broadcasts along the axis
    one, two = (torch.linalg.vector_norm(x, dim=axis).clamp(min=eps) for x in (x1, x2))
    return (x1 * x2).sum(axis) / (one * two)


@op(
    "pairwise_distance",
    why="relative error 0.5 for distances of 1e-6: the graph adds eps in another place than eager",
    tries=_pairs,
    case=_at_magnitudes(torch.pairwise_distance),
    exporters=("trace",),
    reason=_DIGITS,
)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps."""
    return torch.linalg.vector_norm(x1 - x2 + eps, p, dim=-1, keepdim=keepdim)


def _alignments(scores: Tensor) -> Tensor:
    """Sums over paths that begin anywhere from 0 on: the first entry of each row but one is masked."""
    before = torch.arange(scores.shape[1])[None, :] < torch.arange(3)[:, None]
    return (scores[:, None] * 100 - 200).masked_fill(before, -math.inf).logsumexp(-1)


@op(
    "logsumexp",
    why="non-finite values differ: where a row begins with -inf and its other numbers are below -104, onnxruntime's "
    "ReduceLogSumExp is -inf",
    tries=lambda b, n: torch.rand(b, n),
    case=_alignments,
    reason=_DIGITS,
)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """As eager: the sum is taken beside the largest number, where that is finite."""
    if not input.is_floating_point() or not input.dim():
        return NotImplemented
    largest = input.amax(dim, keepdim=True)
    largest = torch.where(largest.abs() == math.inf, torch.zeros_like(largest), largest)
    found = torch.log(torch.exp(input - largest).sum(dim, keepdim=True)) + largest
    # Of one element along these axes: their sum is a way to leave them out.
    return found if keepdim else found.sum(dim)
