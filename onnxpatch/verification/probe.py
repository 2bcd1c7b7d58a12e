"""`Probe`: one input with eager's answer. `Budget`: how much may be compared."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.runtimes.interface import DEFAULT_SECONDS


@dataclass
class Probe:
    """One input with eager's answer. kind: example, data, size, branch, given or guard.

    exact: the values are chosen exactly, as 7 for `x == 7`. A difference at such a probe is not excused by eager's
    answer to inputs moved by a rounding.
    """

    label: str
    kind: str
    sizes: dict[str, int]
    values: list[Any]
    expected: tuple[torch.Tensor | None, ...]
    raw: Any = None
    exact: bool = False


@dataclass(frozen=True)
class Budget:
    """How much may be compared. It counts work, not seconds, so that the verdict is the same on every machine.

    probes: inputs compared. Other data, branches and dropped guards come on top.
    questions: runs of eager in the search for probes. operations: arithmetic in these runs, by `_torch.dispatch_modes`;
    4e10 take about a second on one core. bytes: of the inputs and answers that are kept. tries: sizes of one dimension
    that are run even if the budget is used up, until eager accepts one.
    max_seconds: the user's limit, counted from `start` (time.monotonic()). Half of it is for the search for probes.
    """

    probes: int = 16
    questions: int = 72
    operations: float = 3.2e10
    bytes: int = 512 * 1024 * 1024
    tries: int = 6
    max_seconds: float | None = None
    start: float = 0.0

    @classmethod
    def starting_now(cls, probes: int, max_seconds: float | None = None) -> Budget:
        """A budget whose time starts now. Raises InputError if max_seconds is not a positive number."""
        if max_seconds is None:
            return cls(probes)
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not max_seconds > 0:
            raise InputError(f"max_seconds={max_seconds!r}: give the seconds that the whole may take, or None")
        return cls(probes, max_seconds=max_seconds, start=time.monotonic())

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
