"""The maximum in each window of an adaptive pooling. The work is the number of entries in all windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch.formulas.symbolic import as_tensor


def largest_under(x: Tensor, dim: int, size: Any) -> Tensor:
    """Adaptive max pooling along one axis to `size` entries; axis and size as F.adaptive_max_pool1d has them.

    Window i reaches from floor(i n / size) to ceil((i + 1) n / size). As many entries are gathered for each window as
    the longest may have; in shorter windows the last entry is repeated.
    """
    axis = dim % x.dim()
    places = _windows(x, axis, size)
    windows = x.index_select(axis, places.reshape(-1))
    return windows.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]]).amax(axis + 1)


def places_under(x: Tensor, sizes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """(Maxima, their places in a map as one axis) of an adaptive max pooling of the last axes to these sizes."""
    rank, lead = len(sizes), x.dim() - len(sizes)
    # Of each element of a map, which one it is.
    numbers = torch.ones_like(x[(0,) * lead], dtype=torch.int64).reshape(-1).cumsum(0).reshape(x.shape[lead:]) - 1
    found = []
    for part in (x, numbers):
        front = part.dim() - rank
        for at, size in enumerate(sizes):
            # Behind the axes that were cut into windows before: each has become two.
            axis = front + 2 * at
            places = _windows(part, axis, size)
            windows = part.index_select(axis, places.reshape(-1))
            part = windows.reshape([*part.shape[:axis], *places.shape, *part.shape[axis + 1 :]])
        order = [*range(front), *range(front, front + 2 * rank, 2), *range(front + 1, front + 2 * rank, 2)]
        found.append(part.permute(order).flatten(front + rank))
    best = found[0].argmax(-1, keepdim=True)
    values = found[0].gather(-1, best).squeeze(-1)
    return values, found[1].expand(found[0].shape).gather(-1, best).squeeze(-1)


def _windows(x: Tensor, axis: int, size: Any) -> Tensor:
    """(size, width): the places of each window, the last one again and again where it is shorter."""
    length, count = (as_tensor(number, torch.int64, x.device) for number in (x.shape[axis], size))
    outputs = torch.arange(size, device=x.device)
    # All numbers are at least 0, where trunc is floor, and is what ONNX's Div of whole numbers does.
    starts = torch.div(outputs * length, count, rounding_mode="trunc")
    lasts = torch.div((outputs + 1) * length + count - 1, count, rounding_mode="trunc") - 1
    # Between its floor and its ceil a window may reach one entry beyond ceil(n / size).
    width = (x.shape[axis] + size - 1) // size + 1
    return torch.minimum(starts.unsqueeze(1) + torch.arange(width, device=x.device), lasts.unsqueeze(1))
