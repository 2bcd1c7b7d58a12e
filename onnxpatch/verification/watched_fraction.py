"""`WatchedFraction`: a float computed from a size, whose comparisons are recorded as comparisons of that size.

if h / w > 2: ...              recorded as: h compared with 2 * w
math.ceil(n / 64)              a watched size again; the sizes at which it changes are recorded, too
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Note = Callable[[float, bool, bool, bool], bool]
Solve = Callable[[float], float]


class WatchedFraction(float):
    """A float computed from a size.

    solve: the size at which it has a value, the other sizes as they are. note: called with (what the size is compared
    with, outcome, whether by == or !=, whether by rounding). whole: makes a watched size of an int.
    """

    solve: Solve
    note: Note
    whole: Callable[[int], Any]

    def __new__(cls, value: float, solve: Solve, note: Note, whole: Callable[[int], Any]) -> WatchedFraction:
        made = super().__new__(cls, value)
        made.solve, made.note, made.whole = solve, note, whole
        return made

    # A copy is a plain float, which keeps no record of this run alive.
    def __reduce__(self) -> Any:
        return float, (float(self),)

    # Python drops the inherited hash of a class that defines __eq__.
    __hash__ = float.__hash__

    def compared(self, other: float, answer: bool, equality: bool, first: bool = False) -> bool:
        """Note a comparison, unless no size has that value. Returns the outcome."""
        try:
            wanted = self.solve(other)
        except (ZeroDivisionError, OverflowError):
            return answer
        # What rounding put beside a whole number is that number: 0.1 * 30 is 3.0000000000000004.
        near = round(wanted) if math.isfinite(wanted) else wanted
        return self.note(near if math.isclose(near, wanted, rel_tol=1e-9) else wanted, answer, equality, first)

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
            self.compared(until, value > first, False, first=True)
        return self.whole(value)


def _computed(name: str, back: Callable[[float, float], float]) -> Any:
    """A method of arithmetic. back: (result, other operand) -> the value that gives this result."""
    plain = getattr(float, f"__{name}__")

    def method(self: WatchedFraction, other: Any) -> Any:
        value = plain(self, other)
        if not isinstance(value, float):
            return value
        known = float(other)
        return WatchedFraction(value, lambda wanted: self.solve(back(wanted, known)), self.note, self.whole)

    return method


def _compared(name: str) -> object:
    plain = getattr(float, f"__{name}__")

    def method(self: WatchedFraction, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int | float):
            self.compared(float(other), answer, name in ("eq", "ne"))
        return answer

    return method


for _name, _back in {
    "add": lambda v, c: v - c, "radd": lambda v, c: v - c, "sub": lambda v, c: v + c, "rsub": lambda v, c: c - v,
    "mul": lambda v, c: v / c, "rmul": lambda v, c: v / c, "truediv": lambda v, c: v * c,
    "rtruediv": lambda v, c: c / v,
}.items():  # fmt: skip
    setattr(WatchedFraction, f"__{_name}__", _computed(_name, _back))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(WatchedFraction, f"__{_name}__", _compared(_name))
