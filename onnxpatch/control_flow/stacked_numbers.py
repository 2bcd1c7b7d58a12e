"""Builds one tensor from a nest of Python numbers, symbolic numbers and 0-d tensors, as torch.tensor does from numbers.

torch.tensor([x.shape[0], 1])      [2], int64      stack of a 0-d tensor and a constant
torch.tensor([[x.max(), 0.0]])     [1, 2], float   torch.tensor itself would detach x.max() into a number
"""

from __future__ import annotations

from typing import cast

import torch


def has_graph_number(data: object) -> bool:
    """Whether a nest of lists and tuples has a tensor or a symbolic number in it."""
    if isinstance(data, list | tuple):
        return any(has_graph_number(inner) for inner in data)
    return isinstance(data, torch.Tensor | torch.SymInt | torch.SymFloat)


def stacked(data: object, dtype: torch.dtype | None) -> torch.Tensor:
    """A nest of numbers as one tensor. dtype: None for the one that torch.tensor would choose."""
    tensor = as_tensor(data)
    whole = not tensor.dtype.is_floating_point
    wanted = dtype or (tensor.dtype if whole else torch.get_default_dtype())
    return tensor if tensor.dtype == wanted else tensor.to(wanted)


def as_tensor(data: object) -> torch.Tensor:
    """A nest of numbers as one tensor, with the dtypes of its parts promoted."""
    if isinstance(data, list | tuple):
        parts = [as_tensor(inner) for inner in data]
        wanted = parts[0].dtype
        for part in parts[1:]:
            wanted = torch.promote_types(wanted, part.dtype)
        return torch.stack([part.to(wanted) if part.dtype != wanted else part for part in parts])
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, torch.SymInt):
        return full_scalar(data, torch.int64)
    return full_scalar(data, torch.int64 if isinstance(data, int) and not isinstance(data, bool) else None)


def full_scalar(number: object, dtype: torch.dtype | None) -> torch.Tensor:
    """A number, plain or symbolic, as a 0-d tensor. dtype: None for the default of its type."""
    # torch.tensor would take the example's value out of a symbolic number.
    return torch.full((), cast(float, number), dtype=dtype)
