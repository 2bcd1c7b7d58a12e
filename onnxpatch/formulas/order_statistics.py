"""Median and k-th smallest entry by TopK with the smallest sufficient k, which is faster than a sort."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Found(NamedTuple):
    """torch's result of a search along an axis: values and their indices."""

    values: Tensor
    indices: Tensor


def median(x: Tensor, dim: int, keepdim: bool) -> Found:
    """torch.median: the lower of the two middle entries and its index; NaN if an entry is NaN."""
    values, places = _largest_of_smallest(_ordered(x), (x.shape[dim] + 1) // 2, dim)
    if x.is_floating_point():
        # ONNX's ArgMax has no form for bools.
        unknown = (x != x).to(torch.float32)
        # torch gives the index of the first NaN.
        first = unknown.argmax(dim, keepdim=True)
        spoilt = unknown.amax(dim, keepdim=True) > 0
        values, places = torch.where(spoilt, torch.nan, values), torch.where(spoilt, first, places)
    return Found(values, places) if keepdim else Found(values.squeeze(dim), places.squeeze(dim))


def kthvalue(x: Tensor, k: int, dim: int, keepdim: bool) -> Found:
    """torch.kthvalue: the k-th smallest entry and its index."""
    values, places = _largest_of_smallest(_ordered(x), k, dim)
    return Found(values, places) if keepdim else Found(values.squeeze(dim), places.squeeze(dim))


def _ordered(x: Tensor) -> Tensor:
    """`x` with inf in place of NaN: torch sorts NaN last, TopK does not."""
    return torch.where(x == x, x, torch.inf) if x.is_floating_point() else x


def _largest_of_smallest(x: Tensor, count: Any, dim: int) -> tuple[Tensor, Tensor]:
    # Unsorted: only the largest of them is asked for.
    values, places = x.topk(count, dim=dim, largest=False, sorted=False)
    # The k smallest come unsorted; the largest of them is the k-th.
    found = values.argmax(dim, keepdim=True)
    return values.gather(dim, found), places.gather(dim, found)
