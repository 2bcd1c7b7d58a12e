"""`WatchedNumber`: a float that records its comparisons, since no hook of torch sees `x.item() == 10.0`.

What is computed from it is watched as well, and noted as a comparison of the number itself:

    total = x.sum().item()
    if total // 10 == 3: ...      total is compared with 35, the middle of 30 to 40
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Note = Callable[[float, float, bool, bool], None]
Solve = Callable[[float], float]


class WatchedNumber(float):
    """A float that records comparisons.

    note: called with (number, other, whether by == or !=, outcome). number: the one that the data gave, of which this
    is computed. solve: the number at which this has a value.
    """

    note: Note
    number: float
    solve: Solve

    def __new__(
        cls, value: float, note: Note, number: float | None = None, solve: Solve = lambda value: value
    ) -> WatchedNumber:
        made = super().__new__(cls, value)
        made.note, made.number, made.solve = note, float(value) if number is None else number, solve
        return made

    # A copy is a plain float, which keeps no record of this run alive.
    def __reduce__(self) -> Any:
        return float, (float(self),)

    # Python drops the inherited hash of a class that defines __eq__.
    __hash__ = float.__hash__

    def __abs__(self) -> WatchedNumber:
        return WatchedNumber(abs(float(self)), self.note, self.number, self.solve)

    def __neg__(self) -> WatchedNumber:
        return WatchedNumber(-float(self), self.note, self.number, lambda value: self.solve(-value))


def _computed(name: str, back: Callable[[float, float], float]) -> Any:
    """A method of arithmetic. back: (result, other operand) -> the value that gives this result."""
    plain = getattr(float, f"__{name}__")

    def method(self: WatchedNumber, other: Any) -> Any:
        value = plain(self, other)
        if not isinstance(value, float):
            return value
        known = float(other)
        return WatchedNumber(value, self.note, self.number, lambda wanted: self.solve(back(wanted, known)))

    return method


def _compared(name: str, equality: bool) -> object:
    plain = getattr(float, f"__{name}__")

    def method(self: WatchedNumber, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int | float):
            try:
                self.note(self.number, self.solve(float(other)), equality, answer)
            except (ZeroDivisionError, OverflowError):  # no number gives that value
                self.note(float(self), float(other), equality, answer)
        return answer

    return method


for _name, _back in {
    "add": lambda v, c: v - c, "radd": lambda v, c: v - c, "sub": lambda v, c: v + c, "rsub": lambda v, c: c - v,
    "mul": lambda v, c: v / c, "rmul": lambda v, c: v / c, "truediv": lambda v, c: v * c,
    "floordiv": lambda v, c: v * c + c / 2,
}.items():  # fmt: skip
    setattr(WatchedNumber, f"__{_name}__", _computed(_name, _back))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(WatchedNumber, f"__{_name}__", _compared(_name, _name in ("eq", "ne")))
