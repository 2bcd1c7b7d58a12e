"""The maximum in each window of an adaptive pooling. The work is the number of entries in all windows."""

from __future__ import annotations

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
    length, count = (as_tensor(number, torch.int64, x.device) for number in (x.shape[axis], size))
    outputs = torch.arange(size, device=x.device)
    # All numbers are at least 0, where trunc is floor, and is what ONNX's Div of whole numbers does.
    starts = torch.div(outputs * length, count, rounding_mode="trunc")
    lasts = torch.div((outputs + 1) * length + count - 1, count, rounding_mode="trunc") - 1
    # Between its floor and its ceil a window may reach one entry beyond ceil(n / size).
    width = (x.shape[axis] + size - 1) // size + 1
    places = torch.minimum(starts.unsqueeze(1) + torch.arange(width, device=x.device), lasts.unsqueeze(1))
    windows = x.index_select(axis, places.reshape(-1))
    return windows.reshape([*x.shape[:axis], size, width, *x.shape[axis + 1 :]]).amax(axis + 1)
