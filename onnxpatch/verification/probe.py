"""One input at which a graph is compared with eager, and the budget: how much may be compared."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS


@dataclass
class Probe:
    """One input with eager's answer. kind: example, data, size, branch, given, guard.

    exact: the values are chosen to the last digit. Moved by one rounding they are other data, and excuse nothing.
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
    """How much may be compared. It counts work and no seconds, so that every machine comes to the same verdict.

    probes: inputs compared; other data, both sides of branches and what a dropped guard asks for come on top.
    questions, operations: calls of eager in search of probes, and the arithmetic in them (`_torch.operations`: 4e10 are
    about a second of one core). bytes: of inputs and answers that are kept. tries: sizes of one dimension that are
    asked for though the budget is used up, until eager accepts one.
    max_seconds: the limit that the user asked for; start: when it began, by time.monotonic(). Half of it is for the
    search of probes, which comes before the export.
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
        """Raises InputError for seconds that are no positive number."""
        if max_seconds is None:
            return cls(probes)
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not max_seconds > 0:
            raise InputError(f"max_seconds={max_seconds!r}: give the seconds that the whole may take, or None")
        return cls(probes, max_seconds=max_seconds, start=time.monotonic())

    def over(self, share: float = 1.0) -> bool:
        """Whether the user's time, or this share of it, is up."""
        return self.max_seconds is not None and time.monotonic() > self.start + share * self.max_seconds

    @property
    def run_seconds(self) -> float:
        """How long one run of a graph may take."""
        return DEFAULT_SECONDS if self.max_seconds is None else self.max_seconds

    @property
    def seconds_left(self) -> float | None:
        """Of the user's time; None: no limit was asked for."""
        if self.max_seconds is None:
            return None
        return max(0.0, self.start + self.max_seconds - time.monotonic())
