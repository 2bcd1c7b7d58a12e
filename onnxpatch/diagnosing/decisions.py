"""Which numbers a forward takes out of tensors into Python: the decisions that a graph may have frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NUMBERS = {
    torch.Tensor.__bool__: bool,
    torch.Tensor.__int__: int,
    torch.Tensor.__index__: int,
    torch.Tensor.__float__: float,
    torch.Tensor.item: None,
    torch.Tensor.tolist: None,
}
_COUNTING = {torch.nonzero, torch.Tensor.nonzero, torch.masked_select, torch.Tensor.masked_select, torch.unique}


_FINITE = {
    getattr(home, name) for home in (torch, torch.Tensor) for name in ("isnan", "isinf", "isfinite", "nan_to_num")
}
_ENDLESS = 2000


class EndlessError(Exception):
    """The forward keeps asking: some loops end for some data only (halving infinity, say)."""


class Decisions(TorchFunctionMode):
    """Records, in order, what each tensor-to-Python conversion of a forward answered.

    `signature` is the path through the code as far as data decides it: exact answers of bool and int, the sign of
    floats, whether a data-dependent selection came out empty. Two calls with one signature took the same branches.
    `asks_finite`: the forward looks for NaN or infinity itself; what runtimes make of these elsewhere is their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signature: tuple[object, ...] = ()
        self.asks_finite = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.asks_finite |= func in _FINITE
        if func in _NUMBERS:
            self._add(_coarse(result))
        elif func in _COUNTING or (func is torch.where and len(args) == 1):
            first = result[0] if isinstance(result, tuple) else result
            self._add(("empty", first.numel() == 0))
        return result

    def _add(self, answer: object) -> None:
        self.signature = (*self.signature, answer)
        if len(self.signature) > _ENDLESS:
            raise EndlessError(f"more than {_ENDLESS} decisions: a loop that this data does not end")


def _coarse(answer: Any) -> object:
    if isinstance(answer, bool | int):
        return answer
    if isinstance(answer, float):
        return "nan" if answer != answer else (answer > 0) - (answer < 0)
    if isinstance(answer, list):
        return tuple(_coarse(one) for one in answer[:64])
    return type(answer).__name__
