"""`Decisions`: records which numbers a forward converts from tensors to Python. An exported graph may freeze them.

    if x.sum() > 0:              x.sum() > 0 becomes a Python bool: recorded as True
    n = int(lengths.max())       recorded as 17
    y = x[x > 0]                 the number of selected elements: recorded as none, one, or more

It also records constants that the data is compared with (`x == 7`) and steps that it is divided by (`x // 0.7`), since
only data with these values shows whether the graph handles them.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Collection, Container, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.decisions.number import Number
from onnxpatch.messages.user_code import package_of, user_frame
from onnxpatch.verification.data_constants import DataConstants, number_of
from onnxpatch.verification.size_recorder import SizeWatch

_NUMBERS = {
    torch.Tensor.__bool__: bool,
    torch.Tensor.__int__: int,
    torch.Tensor.__index__: int,
    torch.Tensor.__float__: float,
    torch.Tensor.item: None,
    torch.Tensor.tolist: None,
}
_ARRAYS: Collection[Any] = {torch.Tensor.numpy, torch.Tensor.__array__}


def _functions(*names: str) -> Collection[Any]:
    """The functions of torch and the methods of Tensor with these names."""
    return {getattr(home, name) for home in (torch, torch.Tensor) for name in names if hasattr(home, name)}


_FINITE = _functions(
    "isnan", "isinf", "isfinite", "nan_to_num", "nanmean", "nansum", "nanmedian", "nanquantile", "fmax", "fmin"
)
_ORDERING = _functions("__lt__", "__le__", "__gt__", "__ge__", "lt", "le", "gt", "ge")
_EQUALITY = _functions("__eq__", "__ne__", "eq", "ne", "isclose", "not_equal")
_SAMENESS = _functions("equal", "allclose")
# Of numbers outside their domain they are NaN, though all inputs are finite.
_PARTIAL = _functions("sqrt", "log", "log2", "log10", "log1p", "acos", "asin", "arccos", "arcsin", "acosh", "atanh")
# They draw for some data only, so that the example need not show it.
_DRAWING: Collection[Any] = {*_functions("rrelu", "rrelu_"), torch.nn.functional.rrelu}
_AMONG = _functions("isin")
_APART = _functions("__sub__", "sub", "cdist")
_COUNTING = _functions("nonzero", "masked_select", "unique", "unique_consecutive")
_STEPPING = _functions("__floordiv__", "floor_divide", "__mod__", "remainder", "fmod")
_DIVIDING = _functions("__truediv__", "div", "divide", "true_divide", "reciprocal", "__rtruediv__", "rsqrt", "log")
# A function mode gets the getter of a property: `x.shape` arrives as torch.Tensor.shape.__get__.
_SHAPES = {torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.numel}  # type: ignore[attr-defined]
# Conversions in one forward, after which it is taken for one that does not end.
_ENDLESS = 2000
_MOST_COMPARED = 16
_QUICK = 100  # calls of torch's functions


class EndlessError(Exception):
    """The forward makes conversions without end: some loops end for some data only (halving infinity, say)."""


class Decisions(TorchFunctionMode):
    """Records every conversion of a tensor to a Python value in a forward, in order.

    signature: the recorded values: bools and ints exactly, floats by their sign, data-dependent selections as empty,
    one or more. Two calls with the same signature took the same branches, but for
    magnitudes: of the floats, and of arrays for numpy: what Python computes with them is not seen.
    lines: `file:line` of the user's code at which they were made, each once and in order.
    asks_finite: the forward tests for NaN or infinity.
    compared: (number computed from the data, what it is compared with).
    constants: values that data is compared with, and steps that it is divided by.
    calls: of torch's functions. divides: data is divided by data, or its logarithm is taken: zeros make NaN. partial:
    roots, logarithms or angles of data are taken: other signs make NaN. draws: it may draw random numbers.
    told: the floats that were converted to Python numbers. converts: to others than bools.
    sizes: comparisons of sizes, if `watch_sizes`.
    watch_numbers: return floats that record their comparisons. Some code does not accept them.
    """

    def __init__(
        self, watch_sizes: bool = False, watch_numbers: bool = True, own: Container[int] = frozenset()
    ) -> None:
        """own: addresses of the model's own tensors."""
        super().__init__()
        self._own = own
        self.sizes = SizeWatch()
        self.constants = DataConstants()
        self.divides = self.partial = self.draws = self.gave_numbers = self.converts = False
        self.told: list[float] = []
        self.calls = 0
        self._numbers = watch_numbers
        self._shapes = _SHAPES if watch_sizes else frozenset()
        self.signature: tuple[object, ...] = ()
        self.magnitudes: tuple[object, ...] = ()
        self.lines: dict[str, None] = {}
        self.asks_finite = False
        self.compared: list[tuple[float, float]] = []

    @property
    def quick(self) -> bool:
        """Whether the forward makes so few calls that it may be run for data and sizes of every kind."""
        return self.calls <= _QUICK

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        # A mode is off inside its own method: what this call does in turn is not recorded.
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        if func in self._shapes:
            return self.sizes.watched(result)
        if func is torch.nn.functional.interpolate and self._shapes:
            self._resize(result, *args, **(kwargs or {}))
        self.asks_finite |= func in _FINITE
        self.partial |= func in _PARTIAL
        self.draws |= func in _DRAWING
        if func in _ORDERING or func in _EQUALITY or func in _SAMENESS:
            self._compare(func, result, *args[:2])
        elif func in _AMONG or func in _APART:
            self._meet(args, among=func in _AMONG)
        elif func in _STEPPING:
            self.constants.divided(*args[:2])
        elif func in _DIVIDING:
            # A number as divisor is no data: it cannot become 0.
            self.divides |= isinstance(args[-1], torch.Tensor)
        # Code of this package reads arrays for itself: the state of the random generator.
        if func in _ARRAYS and package_of(sys._getframe(1)) != "onnxpatch":
            self.converts = True
            self._measure(args[0].detach())
        if func in _NUMBERS:
            self._tell(args[0], result)
            self._add(_coarse(result))
            self._measure(result)
            if func is torch.Tensor.item and self._numbers and type(result) is float:
                self.gave_numbers = True
                return Number(result, functools.partial(self._decide, result))
        elif func in _COUNTING or (func is torch.where and len(args) == 1):
            first = result[0] if isinstance(result, tuple) else result
            # The exact number would make a branch of every input; none and one are what torch and ONNX treat specially,
            # and two or three what a model may count.
            self._add(("none, one or more", min(first.numel(), 4)))
        return result

    def _resize(
        self,
        result: torch.Tensor,
        input: torch.Tensor,
        size: object = None,
        scale_factor: object = None,
        mode: str = "nearest",
        *_: object,
        **__: object,
    ) -> None:
        """Note the factors of `F.interpolate(input, ...)`, and the axes that it resizes to their nearest neighbours."""
        factors = scale_factor if isinstance(scale_factor, tuple | list) else [scale_factor] * (input.dim() - 2)
        for extent, factor in zip(input.shape[2:], factors, strict=True):
            if isinstance(factor, float) and not factor.is_integer():
                self.sizes.products.setdefault((extent, float(factor), False))
        if size is not None and mode == "nearest":
            pairs = zip(input.shape[2:], result.shape[2:], strict=True)
            self.sizes.resized.update((pair, None) for pair in pairs if pair[0] != pair[1])

    def _compare(self, func: Any, answer: Any, left: Any = None, right: Any = None) -> None:
        sides = (left, right)
        if not all(isinstance(side, torch.Tensor | int | float) for side in sides):
            return
        equality = func not in _ORDERING
        # `x != x` is a way to ask for NaN.
        self.asks_finite |= left is right or any(isinstance(side, float) and not math.isfinite(side) for side in sides)
        if equality:
            self._meet(sides)
        self.constants.compared(left, right, equality)
        # torch.equal and allclose answer in Python: a branch, without a conversion of its own.
        if isinstance(answer, bool):
            self._add(answer)
        if isinstance(answer, torch.Tensor) and answer.numel() == 1 and all(map(_is_number, sides)):
            a, b = (number_of(side) for side in sides)
            if a is not None and b is not None:
                self._note(a, b, equality)

    def _meet(self, sides: Sequence[object], among: bool = False) -> None:
        """Note the model's own tensors among the sides."""
        for side in sides:
            if isinstance(side, torch.Tensor) and side.numel() > 1 and address(side) in self._own:
                self.constants.met(side, among)

    def _tell(self, of: torch.Tensor, told: object) -> None:
        self.converts |= not isinstance(told, bool)
        if (
            of.is_floating_point()
            and of.numel() == 1
            and not isinstance(told, bool)
            and len(self.told) < _MOST_COMPARED
        ):
            self.told.append(float(of))

    def _decide(self, number: float, other: float | None, answer: bool, equality: bool, rounding: bool) -> None:
        if rounding:  # nobody asked
            return
        if other is not None:
            self._note(number, other, equality)
        self._add(answer)

    def _note(self, number: float, other: float, equality: bool) -> None:
        if len(self.compared) < _MOST_COMPARED:
            self.compared.append((number, other))
        if equality and math.isfinite(other):
            self.constants.equals.setdefault(other, number)

    def _measure(self, told: object) -> None:
        """Note the magnitudes of floats, and of the ends of an array or a list."""
        if isinstance(told, torch.Tensor):
            told = [float(told.min()), float(told.max())] if told.numel() and not told.is_complex() else []
        floats = told if isinstance(told, list) else [told]
        if len(self.magnitudes) < _ENDLESS:
            self.magnitudes += tuple(_magnitude(one) for one in floats[:64] if isinstance(one, float))

    def _add(self, answer: object) -> None:
        self.signature = (*self.signature, answer)
        frame = user_frame(sys._getframe(1))
        if frame is not None:
            self.lines.setdefault(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        if len(self.signature) > _ENDLESS:
            raise EndlessError(f"more than {_ENDLESS} decisions: a loop that this data does not end")


def address(tensor: torch.Tensor) -> int:
    """Of its memory, which views share; 0 for one without, such as a sparse one, or a row under torch.vmap."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
    except (RuntimeError, NotImplementedError):
        return 0


def addresses(model: object) -> frozenset[int]:
    """The addresses of a model's parameters and buffers."""
    tensors = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    return frozenset(map(address, tensors)) - {0}


def _is_number(side: object) -> bool:
    return not isinstance(side, torch.Tensor) or side.numel() == 1


def _magnitude(number: float) -> object:
    if number == 0 or not math.isfinite(number):
        return repr(number)
    return math.floor(math.log10(abs(number)))


def _coarse(answer: object) -> object:
    if isinstance(answer, bool | int):
        return answer
    if isinstance(answer, float):
        # Exactly, every float would be another branch; which side of zero it is on is what an `if` asks most.
        return "nan" if answer != answer else (answer > 0) - (answer < 0)
    if isinstance(answer, list):
        # A list of thousands (`ids.tolist()`) says no more than its first ones.
        return tuple(_coarse(one) for one in answer[:64])
    return type(answer).__name__
