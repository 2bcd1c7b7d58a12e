"""`Decisions`: records what a forward, run in eager, reads from its tensors into Python: bools, numbers, sizes.

The exported graph may keep the values of the example as constants, so other data has to be compared too.

    if x.sum() > 0:              x.sum() > 0 becomes a Python bool: recorded as True
    n = int(lengths.max())       recorded as 17
    y = x[x > 0]                 the number of selected elements: recorded as none, one, or more

It also records constants that the data is compared with (`x == 7`): only data with these values shows whether the graph
handles them.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.decisions.ask import Number
from onnxpatch.decisions.sides_taken import Taken
from onnxpatch.messages.user_code import is_user_frame, package_of, user_frame
from onnxpatch.verification.size_recorder import SizeWatch

# Conversions in one forward, after which it is taken for one that does not end.
_ENDLESS = 2000
_MOST_COMPARED = 16
# Returns what the caller gets in place of the result; None: the result.
Reader = Callable[..., object]
_NEAR = 3  # frames of the model's code
_QUICK = 100  # calls of torch's functions


class _EndlessError(Exception):
    """The forward makes conversions without end: some loops end for some data only (halving infinity, say)."""


class Decisions(TorchFunctionMode):
    """Records every conversion of a tensor to a Python value in a forward, in order.

    signature: the recorded values: bools and ints exactly, floats by their sign, data-dependent selections as empty,
    one or more. Two calls with the same signature took the same branches, but for what Python and numpy compute.
    lines: `file:line` of the user's code at which they were made, each once and in order.
    asks_finite: the forward tests for NaN or infinity.
    compared: (number computed from the data, what it is compared with, whether by == or !=).
    sides: (place, answer) of the conversions, each once. files: of the code that makes them, and of what calls it.
    values: what elements are compared with, or the next values above and below. equals: what a number computed from
    the data is compared with by ==. steps: by which floats are divided into whole ones and a rest, if their multiples
    are not exact in binary, such as 0.7. Each once, in order.
    calls: of torch's functions. divides: data is divided by data, or its logarithm is taken: zeros make NaN. partial:
    roots, logarithms or angles of data are taken: other signs make NaN. draws: it may draw random numbers.
    converts: data to Python numbers, not to bools alone. rows: a tensor is gone through row by row.
    sizes: comparisons of sizes, if `watch_sizes`.
    taken: the sides of its own conditions that the forward took. without_elements: results of
    operators that have none.
    strides: `file:line` of the user's code at which it asks how an input lies in memory.
    watch_numbers: return floats that record their comparisons. Some code does not accept them. is_given: whether a
    tensor has the memory of an input.
    """

    def __init__(
        self,
        watch_sizes: bool = False,
        watch_numbers: bool = True,
        is_given: Callable[[torch.Tensor], bool] = lambda tensor: False,
    ) -> None:
        super().__init__()
        self.sizes = SizeWatch()
        self.values: dict[float, None] = {}
        self.equals: dict[float, None] = {}
        self.steps: dict[float, None] = {}
        self.divides = self.partial = self.draws = self.gave_numbers = self.converts = self.rows = False
        self.calls = 0
        self._watch_numbers, self._watch_sizes = watch_numbers, watch_sizes
        self.signature: tuple[object, ...] = ()
        self.lines: dict[str, None] = {}
        self.asks_finite = False
        self.taken: Taken | None = None
        self.without_elements = 0
        self.compared: list[tuple[float, float, bool]] = []
        self.sides: set[tuple[str, object]] = set()
        self.files: set[str] = set()
        self.strides: dict[str, None] = {}
        self._is_given = is_given

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.sizes.over = True

    @property
    def quick(self) -> bool:
        """Whether the forward makes so few calls that it may be run for data and sizes of every kind."""
        return 0 < self.calls <= _QUICK  # 0 where it could not be watched

    @property
    def decides(self) -> bool:
        """Whether data may take another branch: none can without a conversion to Python."""
        return self.signature != () or self.converts

    @property
    def shows(self) -> bool:
        """Whether other data may show anything but other numbers."""
        return self.decides or self.divides or self.partial or self.asks_finite

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        # A mode is off inside its own method: what this call does in turn is not recorded.
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        for read in _READERS.get(func, ()):
            instead = read(self, result, *args, **(kwargs or {}))
            result = result if instead is None else instead
        return result

    # -------------------------------------------------------------- readers of a call: (result, its arguments)
    def _sizes(self, result: Any, *_: object, **__: object) -> object:
        return self.sizes.watched(result) if self._watch_sizes else None

    def _ordered(self, result: object, left: Any = None, right: Any = None, *_: object, **__: object) -> None:
        self._compare(result, False, left, right)

    def _equal(self, result: object, left: Any = None, right: Any = None, *_: object, **__: object) -> None:
        self._compare(result, True, left, right)

    def _stepped(self, result: object, left: object, right: object = None, *_: object, **__: object) -> None:
        step = number_of(right)
        # A mantissa of 0.5 means a power of two, whose multiples are exact.
        if step and isinstance(left, torch.Tensor) and left.is_floating_point() and math.frexp(step)[0] != 0.5:
            self.steps.setdefault(step)

    def _divides(self, result: object, *sides: object, **_: object) -> None:
        # A number as divisor is no data: it cannot become 0.
        self.divides |= isinstance(sides[-1], torch.Tensor)

    def _rrelu(self, _: object, *given: object, training: object = False, **__: object) -> None:
        # It draws for numbers below 0 only, so that the example need not show it.
        self.draws |= bool(training or given[3:4] == (True,))

    def _array(self, result: object, of: torch.Tensor, *_: object, **__: object) -> None:
        # Code of this package reads arrays for itself: the state of the random generator.
        if package_of(sys._getframe(2)) != "onnxpatch":
            self.converts = True

    def _converted(self, result: object, *_: object, **__: object) -> None:
        self.converts |= not isinstance(result, bool)
        self._add(_coarse(result))

    def _lies(self, result: object, of: torch.Tensor, *_: object, **__: object) -> None:
        frame = sys._getframe(2)
        if is_user_frame(frame) and self._is_given(of):
            self.strides.setdefault(f"{frame.f_code.co_filename}:{frame.f_lineno}")

    def _item(self, result: object, *_: object, **__: object) -> object:
        if not self._watch_numbers or type(result) is not float:
            return None
        self.gave_numbers = True
        return Number(result, functools.partial(self._decide, result))

    def _counted(self, result: Any, *args: object, **_: object) -> None:
        first = result[0] if isinstance(result, tuple) else result
        # The exact number would make a branch of every input; none and one are what torch and ONNX treat specially,
        # and two or three what a model may count.
        self._add(("none, one or more", min(first.numel(), 4)))

    def _where(self, result: object, *args: object, **_: object) -> None:
        if len(args) == 1:
            self._counted(result)

    # -------------------------------------------------------------- what they note
    def _resized(
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
        if not self._watch_sizes:
            return
        factors = scale_factor if isinstance(scale_factor, tuple | list) else [scale_factor] * (input.dim() - 2)
        for extent, factor in zip(input.shape[2:], factors, strict=True):
            if isinstance(factor, float) and not factor.is_integer():
                self.sizes.products.setdefault((extent, float(factor), False))
        if size is not None and mode == "nearest":
            pairs = zip(input.shape[2:], result.shape[2:], strict=True)
            self.sizes.resized.update((pair, None) for pair in pairs if pair[0] != pair[1])

    def _compare(self, answer: Any, equality: bool, left: Any = None, right: Any = None) -> None:
        sides = (left, right)
        if not all(isinstance(side, torch.Tensor | int | float) for side in sides):
            return
        # `x != x` is a way to ask for NaN, `x == inf` for infinity; `x <= radius` with an infinite one is none.
        infinite = any(isinstance(side, float) and not math.isfinite(side) for side in sides)
        self.asks_finite |= left is right or equality & infinite
        numbers = [number_of(left), number_of(right)]
        for side, number in zip((right, left), numbers, strict=True):  # what a tensor is compared with
            if number is not None and isinstance(side, torch.Tensor) and math.isfinite(number):
                self.values |= dict.fromkeys([number] if equality else [number + 1, number - 1])
        # torch.equal and allclose answer in Python: a branch, without a conversion of its own.
        if isinstance(answer, bool):
            self._add(answer)
        a, b = numbers
        if isinstance(answer, torch.Tensor) and answer.numel() == 1 and a is not None and b is not None:
            self._note(a, b, equality)

    def _decide(self, number: float, other: float | None, answer: bool, equality: bool, rounding: bool) -> None:
        if rounding or self.sizes.over:  # nobody asked
            return
        if other is not None:
            self._note(number, other, equality)
        self._add(answer)

    def _note(self, number: float, other: float, equality: bool) -> None:
        if len(self.compared) < _MOST_COMPARED:
            self.compared.append((number, other, equality))
        if equality and math.isfinite(other):
            self.equals.setdefault(other)

    def _add(self, answer: object) -> None:
        self.signature = (*self.signature, answer)
        frame = user_frame(sys._getframe(1))
        if frame is not None:
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            self.lines.setdefault(line)
            self.sides.add((f"{line}:{frame.f_lasti}", answer))
            for _ in range(_NEAR):
                self.files |= {frame.f_code.co_filename} if frame is not None else set()
                frame = user_frame(frame.f_back) if frame is not None else None
        if len(self.signature) > _ENDLESS:
            raise _EndlessError(f"more than {_ENDLESS} decisions: a loop that this data does not end")


def number_of(side: object) -> float | None:
    """A number, or a tensor of one element, as a float; None for others."""
    if isinstance(side, torch.Tensor):
        try:
            return float(side.item()) if side.numel() == 1 and not side.is_complex() else None
        except RuntimeError:  # torch.vmap: it stands for the elements of all rows
            return None
    return float(side) if isinstance(side, int | float) else None


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


def _functions(names: str) -> Iterator[Any]:
    """The functions of torch and the methods of Tensor with these names."""
    return (getattr(home, name) for home in (torch, torch.Tensor) for name in names.split() if hasattr(home, name))


def _marks(flag: str) -> Reader:
    return lambda watch, *_, **__: setattr(watch, flag, True)


_READERS: dict[Any, list[Reader]] = {
    # A function mode gets the getter of a property: `x.shape` arrives as torch.Tensor.shape.__get__.
    torch.Tensor.shape.__get__: [Decisions._sizes],  # type: ignore[attr-defined]
    torch.nn.functional.interpolate: [Decisions._resized],
    torch.nn.functional.rrelu: [Decisions._rrelu],
}
_READ: dict[Reader, str] = {
    Decisions._sizes: "size numel",
    _marks("asks_finite"): "isnan isinf isfinite nan_to_num nanmean nansum nanmedian nanquantile fmax fmin",
    _marks("rows"): "__iter__ unbind",
    # Of numbers outside their domain they are NaN, though all inputs are finite.
    _marks("partial"): "sqrt log log2 log10 log1p acos asin arccos arcsin acosh atanh",
    Decisions._rrelu: "rrelu rrelu_",
    Decisions._ordered: "__lt__ __le__ __gt__ __ge__ lt le gt ge",
    Decisions._equal: "__eq__ __ne__ eq ne isclose not_equal equal allclose",
    Decisions._stepped: "__floordiv__ floor_divide __mod__ remainder fmod",
    Decisions._divides: "__truediv__ div divide true_divide reciprocal __rtruediv__ rsqrt log",
    Decisions._array: "numpy __array__",
    Decisions._converted: "__bool__ __int__ __index__ __float__ item tolist",
    Decisions._item: "item",
    Decisions._lies: "stride is_contiguous data_ptr",
    Decisions._counted: "nonzero masked_select unique unique_consecutive",
    Decisions._where: "where",
}
for _reader, _names in _READ.items():
    for _function in _functions(_names):
        _READERS.setdefault(_function, []).append(_reader)
