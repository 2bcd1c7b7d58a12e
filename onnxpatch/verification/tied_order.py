"""Puts values into another order where torch leaves it open: equal ones of a sort unless `stable=True`, and those of
unique(sorted=False).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class TiesBroken(TorchFunctionMode):
    """A mode in which unstable sorts keep the order of equal values, or (`last`) reverse it.

    met: whether there was anything in an open order.
    """

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last, self.met = last, False

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        form = _FORMS.get(func)
        return result if form is None else form(self, result, *args, **(kwargs or {}))

    def order(self, x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """(values, indices), sorted."""
        if self.last and x.dim():
            # A stable sort of the reversed axis has equal values in the opposite order.
            values, at = torch.sort(x.flip(dim), dim=dim, descending=descending, stable=True)
            at = x.shape[dim] - 1 - at
        else:
            values, at = torch.sort(x, dim=dim, descending=descending, stable=True)
        if x.dim() and x.shape[dim] > 1:
            self.met |= bool((values.narrow(dim, 1, x.shape[dim] - 1) == values.narrow(dim, 0, x.shape[dim] - 1)).any())
        return values, at


def _sort(
    ties: TiesBroken, result: Any, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> object:
    return result if stable else type(result)(ties.order(x, dim, descending))


def _argsort(
    ties: TiesBroken, result: object, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> object:
    return result if stable else ties.order(x, dim, descending)[1]


def _topk(
    ties: TiesBroken, result: Any, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> object:
    if not x.dim():
        return result
    return type(result)(part.narrow(dim, 0, k) for part in ties.order(x, dim, largest))


def _unique(
    ties: TiesBroken,
    result: object,
    x: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> object:
    if sorted:
        return result
    ties.met = True
    return torch.unique(x, True, return_inverse, return_counts, dim)


# A call with other arguments (out=, names of axes) raises inside the block; that answer is then not used.
_FORMS: dict[Any, Callable[..., Any]] = {
    torch.sort: _sort,
    torch.Tensor.sort: _sort,
    torch.argsort: _argsort,
    torch.Tensor.argsort: _argsort,
    torch.topk: _topk,
    torch.Tensor.topk: _topk,
    torch.unique: _unique,
    torch.Tensor.unique: _unique,
}
