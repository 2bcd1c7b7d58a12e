"""Distances between all pairs of rows by one matrix product in float64, without a tensor of all differences."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import static_number

# Up to this many rows torch computes differences, exactly. Here too, if the numbers of rows are static.
_FEW = 25


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """torch.cdist(x, y): (..., n, d), (..., m, d) to (..., n, m).

    |x - y|^2 = x.x + y.y - 2 x.y cancels leading digits: in float64 enough are left for float32.
    """
    if _few(x.shape[-2]) and _few(y.shape[-2]):
        gap = x.unsqueeze(-2) - y.unsqueeze(-3)
        return torch.sqrt((gap * gap).sum(-1))
    # Transposed before the terms are put together: where the operand of a product in float64 is itself a transpose,
    # onnxruntime up to 1.23 makes one node of the two, for which it has no kernel.
    left, right = x.double(), y.transpose(-1, -2).double()
    # All three terms in one product: the rows are (-2 x, x.x, 1), the columns (y, 1, y.y).
    left = torch.cat((-2 * left, (left * left).sum(-1, keepdim=True), torch.ones_like(left[..., :1])), -1)
    right = torch.cat((right, torch.ones_like(right[..., :1, :]), (right * right).sum(-2, keepdim=True)), -2)
    # Rounding may leave a little below 0 for equal rows; its root would be NaN.
    return torch.sqrt(torch.relu(torch.matmul(left, right).to(x.dtype)))


def is_many(x: Tensor) -> bool:
    """Whether x has a static number of rows for which torch computes no differences."""
    count = x.shape[-2]
    count = static_number(count) if isinstance(count, Tensor) else count
    return isinstance(count, int) and count > _FEW


def _few(count: object) -> bool:
    return isinstance(count, int) and count <= _FEW
