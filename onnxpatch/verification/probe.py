"""`Probe`: one input with eager's answer. `Maker`: a way to make inputs. `Budget`: how much may be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.limits import checked_bytes
from onnxpatch.onnxfile.runtimes.interface import DEFAULT_SECONDS
from onnxpatch.verification.sides_taken import Taken

_LEAST_BYTES = 512e6  # that one run may take in any case
_MOST_BYTES = 2e9  # that it may take unless the example comes near: beside the rest of an export, it suits 8 GB
_TIMES = 16  # what the example takes
_ROOM = 1.5  # for other data, where the example itself takes more
_MOST_CALLS = (100, 100_000)  # of operators: times the example's, and more


@dataclass
class Probe:
    """One input with eager's answer. kind: example, data, size, branch, given or guard.

    exact: the values are chosen exactly, as 7 for `x == 7`. A difference at such a probe is not excused by eager's
    answer to inputs moved by a rounding. taken: the sides of its own conditions that eager took.
    """

    label: str
    kind: str
    sizes: dict[str, int]
    values: list[Any]
    expected: tuple[torch.Tensor | None, ...]
    raw: Any = None
    exact: bool = False
    taken: Taken | None = None


Search = TypeVar("Search")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Maker(Generic[Search, Made]):
    """A way to make inputs. serves: whether what was recorded at the example asks for it. makes: what is to be tried,
    likely ones first; what is not requested costs nothing."""

    name: str
    serves: Callable[[Search], object]
    makes: Callable[[Search], Iterator[Made]]


@dataclass(frozen=True)
class Budget:
    """How much may be compared. It counts work, not seconds, so that the verdict is the same on every machine.

    probes: inputs compared. Other data, branches and dropped guards come on top.
    questions: runs of eager in the search for probes. operations: arithmetic in these runs, by `_torch.dispatch_modes`;
    4e10 take about a second on one core. bytes: of the inputs and answers that are kept. tries: sizes of one dimension
    that are run even if the budget is used up, until eager accepts one.
    max_seconds: the user's limit, counted from `start` (time.monotonic()). Half of it is for the search for probes.
    max_memory: the user's limit of bytes for one run, beside what the process has already.
    """

    probes: int = 16
    questions: int = 72
    operations: float = 3.2e10
    bytes: int = 512 * 1024 * 1024
    tries: int = 6
    max_seconds: float | None = None
    max_memory: float | None = None
    start: float = 0.0

    @classmethod
    def starting_now(
        cls, probes: int, max_seconds: float | None = None, max_memory: float | str | None = None
    ) -> Budget:
        """A budget whose time starts now. Raises InputError if max_seconds is not a positive number, or max_memory not
        a number of bytes."""
        most = checked_bytes(max_memory)
        if max_seconds is None:
            return cls(probes, max_memory=most)
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not max_seconds > 0:
            raise InputError(f"max_seconds={max_seconds!r}: give the seconds that the whole may take, or None")
        return cls(probes, max_seconds=max_seconds, max_memory=most, start=time.monotonic())

    def limits(self, example: int, calls: int) -> tuple[float, float]:
        """(bytes, calls of operators) that one run may take. example, calls: what the example takes."""
        usual = max(_ROOM * example, min(_MOST_BYTES, max(_LEAST_BYTES, _TIMES * example)))
        return self.max_memory or usual, _MOST_CALLS[0] * calls + _MOST_CALLS[1]

    def over(self, share: float = 1.0) -> bool:
        """Whether max_seconds, or this share of it, is over. False without a limit."""
        return self.max_seconds is not None and time.monotonic() > self.start + share * self.max_seconds

    @property
    def run_seconds(self) -> float:
        """How many seconds one run of a graph may take."""
        return DEFAULT_SECONDS if self.max_seconds is None else self.max_seconds

    @property
    def seconds_left(self) -> float | None:
        """The rest of max_seconds; None without a limit."""
        if self.max_seconds is None:
            return None
        return max(0.0, self.start + self.max_seconds - time.monotonic())
