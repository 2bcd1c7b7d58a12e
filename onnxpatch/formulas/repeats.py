"""Repeats each element by its own count, in time and memory proportional to the result."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch._torch import exporting


def repeated(source: Tensor, counts: Tensor, dim: int, total: object = None) -> Tensor:
    """source.repeat_interleave(counts, dim, output_size=total). counts: (source.shape[dim],), integers."""
    return source.index_select(dim, sources(counts, total))


def sources(counts: Tensor, total: Any = None) -> Tensor:
    """The index of the element at each place of the result: int64 (sum of counts,).

    A 1 is added at the place where each element ends (several at one place if counts are 0). The running sum of these
    is the number of elements that have ended: the index.
    """
    counts = counts.to(torch.int64)
    total = _sum(counts) if total is None else total
    # One place more: the last element ends at `total`.
    marks = torch.zeros([total + 1], dtype=torch.int64, device=counts.device)
    marks = marks.scatter_add(0, counts.cumsum(0), torch.ones_like(counts))
    return marks.cumsum(0).narrow(0, 0, total)


def _sum(counts: Tensor) -> object:
    total = counts.sum()
    if exporting() == "trace":
        return total
    # torch.export makes an unbacked symbol of it, which may be a length only once it is known to be no less than 0.
    size = total.item()
    torch._check(size >= 0)
    return size
