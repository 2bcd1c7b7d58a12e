"""Which numbers a forward takes out of tensors into Python: the decisions that a graph may have frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.verification.size_recorder import SizeWatch

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
_COMPARING = {
    getattr(home, name)
    for home, names in (
        (torch.Tensor, ("__lt__", "__le__", "__gt__", "__ge__", "lt", "le", "gt", "ge")),
        (torch, ("lt", "le", "gt", "ge")),
    )
    for name in names
}
_SHAPES = {torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.numel}  # type: ignore[attr-defined]
_ENDLESS = 2000
_MOST_COMPARED = 16


class EndlessError(Exception):
    """The forward keeps asking: some loops end for some data only (halving infinity, say)."""


class Decisions(TorchFunctionMode):
    """Records, in order, what each tensor-to-Python conversion of a forward answered.

    `signature` is the path through the code as far as data decides it: exact answers of bool and int, the sign of
    floats, whether a data-dependent selection came out empty. Two calls with one signature took the same branches.
    `asks_finite`: the forward looks for NaN or infinity itself; what runtimes make of these elsewhere is their own.
    `compared`: numbers computed from the data that are compared with another, each with that one.
    `sizes`: what it decides on sizes, where they are watched as well (`watch_sizes`).
    """

    def __init__(self, watch_sizes: bool = False) -> None:
        super().__init__()
        self.sizes = SizeWatch()
        self._shapes = _SHAPES if watch_sizes else frozenset()
        self.signature: tuple[object, ...] = ()
        self.asks_finite = False
        self.compared: list[tuple[float, float]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self._shapes:
            return self.sizes.watched(result)
        self.asks_finite |= func in _FINITE
        if func in _COMPARING and len(self.compared) < _MOST_COMPARED and isinstance(result, torch.Tensor):
            self._compare(result, *args[:2])
        if func in _NUMBERS:
            self._add(_coarse(result))
        elif func in _COUNTING or (func is torch.where and len(args) == 1):
            first = result[0] if isinstance(result, tuple) else result
            self._add(("empty", first.numel() == 0))
        return result

    def _compare(self, answer: torch.Tensor, left: Any = None, right: Any = None) -> None:
        sides = [side for side in (left, right) if isinstance(side, torch.Tensor | int | float)]
        if answer.numel() == 1 and len(sides) == 2:
            a, b = (float(side.item()) if isinstance(side, torch.Tensor) else float(side) for side in sides)
            self.compared.append((a, b))

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
