"""`WatchedNumber`: a float that records its comparisons, since no hook of torch sees `x.item() == 10.0`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Note = Callable[[float, float, bool, bool], None]


class WatchedNumber(float):
    """A float that records comparisons. note: called with (number, other, whether by == or !=, outcome)."""

    note: Note

    def __new__(cls, value: float, note: Note) -> WatchedNumber:
        made = super().__new__(cls, value)
        made.note = note
        return made

    # A copy is a plain float, which keeps no record of this run alive.
    def __reduce__(self) -> Any:
        return float, (float(self),)

    # Python drops the inherited hash of a class that defines __eq__.
    __hash__ = float.__hash__


def _compared(name: str, equality: bool) -> object:
    plain = getattr(float, f"__{name}__")

    def method(self: WatchedNumber, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int | float):
            self.note(float(self), float(other), equality, answer)
        return answer

    return method


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(WatchedNumber, f"__{_name}__", _compared(_name, _name in ("eq", "ne")))
