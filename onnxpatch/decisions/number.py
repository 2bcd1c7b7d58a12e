"""`Number`: a float that records its comparisons as comparisons of the size or the datum of which it is computed.

    if h / w > 2: ...                  noted as: h compared with 2 * w
    total = x.sum().item()
    if total // 10 == 3: ...           noted as: total compared with 35, the middle of 30 to 40

No hook of torch sees what Python does with its own floats. Each operation keeps its inverse instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# (what the source is compared with, None where it never has that value; outcome; by == or !=; by rounding)
Note = Callable[[float | None, bool, bool, bool], object]
Solve = Callable[[float], float]


class Number(float):
    """A float computed from a source: a size, or a number that data gave.

    note: called for each comparison. solve: the source at which this has a value. whole: what rounding it returns, made
    of an int.
    """

    note: Note
    solve: Solve
    whole: Callable[[int], Any]

    def __new__(
        cls, value: float, note: Note, whole: Callable[[int], Any] = int, solve: Solve = lambda value: value
    ) -> Number:
        made = super().__new__(cls, value)
        made.note, made.whole, made.solve = note, whole, solve
        return made

    # A copy is a plain float, which keeps no record of this run alive.
    def __reduce__(self) -> Any:
        return float, (float(self),)

    # Python drops the inherited hash of a class that defines __eq__.
    __hash__ = float.__hash__

    def __abs__(self) -> Number:
        return Number(abs(float(self)), self.note, self.whole, self.solve)

    def __neg__(self) -> Number:
        return Number(-float(self), self.note, self.whole, lambda value: self.solve(-value))

    def __floor__(self) -> Any:
        return self._rounded(math.floor(float(self)), 0, 1.0)

    def __ceil__(self) -> Any:
        return self._rounded(math.ceil(float(self)), 1, 1.0)

    def __round__(self, digits: Any = None) -> Any:
        return self._rounded(round(float(self)), 0, 0.5) if digits is None else round(float(self), digits)

    def _rounded(self, value: int, first: int, until: float) -> object:
        """The whole number. first: the one of the smallest sizes, which ends at `until`."""
        # Further steps are nearer to each other than the sizes that are tried anyway.
        if value in (first, first + 1):
            self._compared(until, value > first, False, True)
        return self.whole(value)

    def _compared(self, other: float, answer: bool, equality: bool, rounding: bool = False) -> None:
        try:
            wanted: float | None = self.solve(other)
        except (ZeroDivisionError, OverflowError):
            wanted = None
        if wanted is not None and math.isfinite(wanted) and math.isclose(round(wanted), wanted, rel_tol=1e-9):
            # What an inverse put beside a whole number is that number: 0.1 * 30 is 3.0000000000000004.
            wanted = float(round(wanted))
        self.note(wanted, answer, equality, rounding)


def _computed(name: str, back: Callable[[float, float], float]) -> Any:
    """A method of arithmetic. back: (result, other operand) -> the value that gives this result."""
    plain = getattr(float, f"__{name}__")

    def method(self: Number, other: Any) -> Any:
        value = plain(self, other)
        if not isinstance(value, float):
            return value
        known = float(other)
        return Number(value, self.note, self.whole, lambda wanted: self.solve(back(wanted, known)))

    return method


def _asked(name: str) -> object:
    """A method of comparison."""
    plain = getattr(float, f"__{name}__")

    def method(self: Number, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int | float):
            self._compared(float(other), answer, name in ("eq", "ne"))
        return answer

    return method


for _name, _back in {
    "add": lambda v, c: v - c, "radd": lambda v, c: v - c, "sub": lambda v, c: v + c, "rsub": lambda v, c: c - v,
    "mul": lambda v, c: v / c, "rmul": lambda v, c: v / c, "truediv": lambda v, c: v * c,
    "rtruediv": lambda v, c: c / v, "floordiv": lambda v, c: v * c + c / 2,
}.items():  # fmt: skip
    setattr(Number, f"__{_name}__", _computed(_name, _back))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _asked(_name))
