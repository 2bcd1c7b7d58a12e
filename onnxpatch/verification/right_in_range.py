"""Where a wrong graph is right after all: from some size on, up to some size, or at multiples, tried before it is said.

A graph that is wrong at one row alone serves whoever never has one: `Dim("n", min=2)` says so to torch.export, and to
whoever uses the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.results.report import Checked, RightWithin
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

_QUESTIONS = 24
_TRIED = 4  # sizes inside a range at which the graph is run before it is proposed
_STEPS = (2, 4, 8, 16, 32, 3, 7, 14)
Right = Callable[[Probe], bool]


@dataclass(frozen=True)
class _Range:
    """Sizes of one dimension. least, most: inclusive, most None: no bound; step: they are its multiples."""

    dim: DynamicDim
    least: int = 1
    most: int | None = None
    step: int = 1

    def holds(self, size: int) -> bool:
        return self.least <= size <= (self.most or size) and size % self.step == 0

    @property
    def declaration(self) -> str:
        bounds = [f"min={self.least}"] * (self.least > 1) + [f"max={self.most}"] * (self.most is not None)
        if self.step > 1:
            return f"{self.step}*Dim('{self.dim.name}')"
        return f"Dim({', '.join([repr(self.dim.name), *bounds])})"


def right_within(oracle: Oracle, checks: Sequence[Checked], right: Right) -> list[RightWithin]:
    """The ranges that keep every wrong check out, none where the graph is wrong at the example's own sizes.

    checks: those that were run; right: runs the graph at one more probe.
    """
    example = {dim.name: dim.size for dim in oracle.dims}
    wrong = [check for check in checks if not check.ok]
    if not wrong or not checks[0].ok or any(check.sizes == example for check in wrong):
        return []
    oracle.reserve(_QUESTIONS)
    trial = _Trial(oracle, checks, right)
    for ranges in _explanations(oracle, trial):
        found = [trial.widened(one) for one in ranges] if len(ranges) == 1 else ranges
        if trial.holds(found):
            return [_told(one, trial) for one in found]
    return []


class _Trial:
    """What is known of the graph by its sizes, and more sizes asked for."""

    def __init__(self, oracle: Oracle, checks: Sequence[Checked], right: Right) -> None:
        self.oracle, self._right = oracle, right
        self.known = {tuple(check.sizes.values()): (check.sizes, check.ok) for check in checks}

    def wrong(self) -> list[dict[str, int]]:
        return [sizes for sizes, ok in self.known.values() if not ok]

    def at(self, sizes: dict[str, int]) -> bool | None:
        """Whether the graph is right at these sizes; None where eager refuses them or the budget does."""
        key = tuple({dim.name: sizes.get(dim.name, dim.size) for dim in self.oracle.dims}.values())
        if key not in self.known:
            probe = self.oracle.at(sizes, far=True, must=True)
            if probe is None:
                return None
            self.known[key] = (probe.sizes, self._right(probe))
        return self.known[key][1]

    def explains(self, ranges: Sequence[_Range]) -> bool:
        """Whether each wrong size lies outside."""
        return all(any(not one.holds(sizes[one.dim.name]) for one in ranges) for sizes in self.wrong())

    def widened(self, one: _Range) -> _Range:
        """The same range with bounds moved out as far as the graph is right."""
        name = one.dim.name
        least, most = one.least, one.most
        right = [sizes[name] for sizes, ok in self.known.values() if ok and self._alone(sizes, name)]
        if most is not None:
            low = max([size for size in right if size <= most], default=one.dim.size)
            most = self._last_right(name, low, most + 1)
        if least > 1:
            high = min([size for size in right if size >= least], default=one.dim.size)
            least = self._last_right(name, high, least - 1)
        return _Range(one.dim, least, most, one.step)

    def _alone(self, sizes: dict[str, int], name: str) -> bool:
        return all(sizes[dim.name] == dim.size for dim in self.oracle.dims if dim.name != name)

    def _last_right(self, name: str, right: int, wrong: int) -> int:
        """The last size from a right one towards a wrong one at which the graph is right, by bisection."""
        while abs(wrong - right) > 1:
            middle = (right + wrong) // 2
            answer = self.at({name: middle})
            if answer is None:
                break
            right, wrong = (middle, wrong) if answer else (right, middle)
        return right

    def holds(self, ranges: Sequence[_Range]) -> bool:
        """Whether the ranges explain what is wrong, and the graph is right at more sizes inside them."""
        answers = [self.at(sizes) for sizes in itertools.islice(_inside(ranges), 2 * _TRIED)]
        asked = [answer for answer in answers if answer is not None]
        return bool(asked) and all(asked[:_TRIED]) and self.explains(ranges)


def _inside(ranges: Sequence[_Range]) -> Iterator[dict[str, int]]:
    """Sizes inside the ranges: near the bounds, and steps away from the example."""
    for one in ranges:
        n, step = one.dim.size, one.step
        wanted = [one.least, one.least + 1, one.most, n + step, n - step, 2 * n, n + 2 * step, step]
        inside = [size for size in wanted if size and size > 0 and one.holds(size) and size != n]
        yield from ({one.dim.name: size} for size in dict.fromkeys(inside))
    if len(ranges) > 1:
        yield {one.dim.name: one.dim.size + one.step for one in ranges}


def _explanations(oracle: Oracle, trial: _Trial) -> Iterator[list[_Range]]:
    """Ranges that keep out what is known to be wrong, the simplest first."""
    for dim in oracle.dims:
        below = [sizes[dim.name] for sizes in trial.wrong() if sizes[dim.name] < dim.size]
        above = [sizes[dim.name] for sizes in trial.wrong() if sizes[dim.name] > dim.size]
        bounded = _Range(dim, max(below, default=0) + 1, min(above) - 1 if above else None)
        if trial.explains([bounded]) and not (below and above):
            yield [bounded]
    yield from _multiples(oracle, trial)
    ones = [_Range(dim, 2) for dim in oracle.dims if dim.size > 1]
    if trial.explains(ones):
        yield ones


def _multiples(oracle: Oracle, trial: _Trial) -> Iterator[list[_Range]]:
    inner = [dim for dim in oracle.dims if any(axis for _, axis, _ in dim.places)]
    for dims in [*([dim] for dim in oracle.dims), *([inner] if len(inner) > 1 else [])]:
        for step in dict.fromkeys([*_STEPS, *oracle.hints.steps]):
            ranges = [_Range(dim, 1, None, step) for dim in dims]
            if all(dim.size % step == 0 for dim in dims) and trial.explains(ranges):
                yield ranges


def _told(one: _Range, trial: _Trial) -> RightWithin:
    name = one.dim.name
    right = sorted({sizes[name] for sizes, ok in trial.known.values() if ok and one.holds(sizes[name])})
    wrong = sorted({sizes[name] for sizes in trial.wrong() if not one.holds(sizes[name])})
    where = f"multiples of {one.step}" if one.step > 1 else f"{name}={right[0]}..{right[-1]}"
    text = f"right at {where}, wrong at {', '.join(map(str, wrong[:3]))}: declare {one.declaration}"
    return RightWithin(name, one.declaration, text)
