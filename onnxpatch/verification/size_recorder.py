"""Records the comparisons of sizes in a forward: the branches that a graph of one size may freeze.

    if x.shape[-1] > 512: ...      in eager a comparison of plain ints, which no hook of torch sees

While a `SizeWatch` is active, `x.shape` returns a subclass of int that records its comparisons, and
whose sums and products are watched sizes as well.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.decisions.ask import Number, Site
from onnxpatch.messages.user_code import asking_frame, package_of

_MOST = 2000
_OURS = ("onnxpatch.verification.size_recorder", "onnxpatch.decisions.ask")


@dataclass(frozen=True)
class SizeComparison:
    """One comparison of sizes in the code of a model, with its outcome.

    site: the line, with the instruction as its columns. equality: == or != (or `if size:`), not an order. size, other:
    the two sides.
    step: if a remainder is compared (`size % step`), the divisor; `size` is then the dividend. Else 0. first_step: the
    size was rounded to its first step (`n // 64` of a small n) or to the second; nobody compared it. exact: neither
    side was rounded, and each is a size or a constant: what is equally far apart at several sizes is so at every one.
    """

    site: Site
    equality: bool
    size: int
    other: float
    step: int
    answer: bool
    first_step: bool = False
    exact: bool = False

    @property
    def outcome(self) -> tuple[object, ...]:
        # Tuples and objects are compared by == first, and by < in the same instruction.
        return self.site, self.equality, self.answer

    @property
    def opposite(self) -> tuple[object, ...]:
        return self.site, self.equality, not self.answer


@dataclass
class SizeWatch:
    """Records the comparisons of sizes in a forward, in order. Those in torch's code are left out.

    products: (size, fraction, whether it was divided) of sizes multiplied or divided by a fraction. resized:
    (size, new size) of axes resized to their nearest neighbours. over: whether the forward has ended: what it kept may
    still be compared, by whoever reads it.
    """

    comparisons: list[SizeComparison] = field(default_factory=list)
    products: dict[tuple[int, float, bool], None] = field(default_factory=dict)
    resized: dict[tuple[int, int], None] = field(default_factory=dict)
    over: bool = False

    def watched(self, sizes: Any) -> object:
        """The sizes that a tensor returned, as watched sizes."""
        if isinstance(sizes, int):
            return _WatchedSize(sizes, self, exact=True)
        return torch.Size([_WatchedSize(size, self, exact=True) for size in sizes])

    def note(self, size: _WatchedSize, other: object, answer: bool, equality: bool, first: bool = False) -> bool:
        if self.over:
            return answer
        frame = asking_frame(sys._getframe(2), *_OURS)
        if (
            frame is not None
            and package_of(frame) != "torch"
            and len(self.comparisons) < _MOST
            and isinstance(other, int | float)
        ):
            # A `while` has its condition twice in the byte code: whether there is a first round is another question.
            site = Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, (frame.f_lasti, frame.f_lasti))
            # What a model pads to is the dividend; its remainder alone tells no size to try.
            of = size.divided if size.step else int(size)
            constant = type(other) is int and other in frame.f_code.co_consts
            exact = size.exact and (constant or getattr(other, "exact", False))
            other = int(other) if isinstance(other, int) else other
            self.comparisons.append(SizeComparison(site, equality, of, other, size.step, bool(answer), first, exact))
        return answer

    def outcomes(self) -> frozenset[tuple[object, ...]]:
        """Every comparison with its outcome, once."""
        return frozenset(one.outcome for one in self.comparisons)

    def beyond(self, seen: Collection[tuple[object, ...]]) -> list[SizeComparison]:
        """The comparisons with an outcome that was not seen, without the first steps."""
        return [one for one in self.comparisons if one.outcome not in seen and not one.first_step]


class _WatchedSize(int):
    """A size, or an int computed from sizes. divided, step: of a remainder, its dividend and divisor. exact: it was not
    rounded."""

    watch: SizeWatch
    divided: int
    step: int
    exact: bool

    def __new__(
        cls, value: int, watch: SizeWatch, divided: int = 0, step: int = 0, exact: bool = False
    ) -> _WatchedSize:
        made = super().__new__(cls, value)
        made.watch, made.divided, made.step, made.exact = watch, divided, step, exact
        return made

    # A copy is a plain int: a size that a model keeps (a cache, a config) must not keep the record of this run alive.
    def __reduce__(self) -> Any:
        return int, (int(self),)

    # Python drops the inherited hash of a class that defines __eq__, and sizes are keys of dicts.
    __hash__ = int.__hash__

    def __mod__(self, other: Any) -> Any:
        rest = int.__mod__(self, other)
        return _WatchedSize(rest, self.watch, int(self), abs(int(other))) if isinstance(other, int) else rest

    def __mul__(self, other: object) -> Any:
        return self._multiplied(other, False) if isinstance(other, float) else _times(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Any:
        return self._multiplied(other, True) if isinstance(other, int | float) else NotImplemented

    def __rtruediv__(self, other: object) -> Any:
        return other / self._number() if isinstance(other, int) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        value = int.__floordiv__(self, other)
        if int(self) > 0 and value in (0, 1):  # `n // 64` of a small n: the first step is at n = 64
            self.watch.note(self, other, value == 1, False, first=True)
        return _WatchedSize(value, self.watch) if type(value) is int else value

    def _multiplied(self, by: float, divided: bool) -> Any:
        if isinstance(by, float):
            self.watch.products.setdefault((int(self), float(by), divided))
        return self._number() / by if divided else self._number() * by

    def _number(self) -> Number:
        note = functools.partial(self.watch.note, self)
        return Number(int(self), note, lambda whole: _WatchedSize(whole, self.watch))

    def __bool__(self) -> bool:
        return self.watch.note(self, 0, int(self) != 0, True)


def _computed(plain: Callable[..., object], rounds: bool = False) -> Any:
    def method(self: _WatchedSize, *others: object) -> Any:
        value = plain(self, *others)
        exact = self.exact and not rounds and all(getattr(one, "exact", True) for one in others)
        return _WatchedSize(value, self.watch, exact=exact) if type(value) is int else value

    return method


def _compared(name: str, equality: bool) -> object:
    def method(self: _WatchedSize, other: object) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        # int's comparison methods give NotImplemented for a float.
        answer = getattr(float(self) if isinstance(other, float) else int(self), name)(other)
        return self.watch.note(self, other, answer, equality)

    return method


_times = _computed(int.__mul__)
for _name in ("add", "radd", "sub", "rsub", "rfloordiv", "neg", "abs", "rmod"):
    setattr(_WatchedSize, f"__{_name}__", _computed(getattr(int, f"__{_name}__"), _name in ("rfloordiv", "rmod")))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_WatchedSize, f"__{_name}__", _compared(f"__{_name}__", _name in ("eq", "ne")))
