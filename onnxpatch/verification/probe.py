"""One input to hold a graph against, and how many of them there may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Probe:
    """One input with eager's answer. kind: example, data, size, branch, given, guard."""

    label: str
    kind: str
    sizes: dict[str, int]
    values: list[Any]
    expected: tuple[torch.Tensor | None, ...]
    raw: Any = None


@dataclass
class Limits:
    """How much may be asked: probes kept, questions to eager, seconds spent in it, bytes of answers held.

    least: sizes per dimension that may be asked for when time is up, until eager accepts one. growth: the most that all
    inputs together may grow to, as a multiple of the example's.
    """

    probes: int = 16
    questions: int = 72
    least: int = 6
    seconds: float = 1.2
    bytes: int = 512 * 1024 * 1024
    growth: float = 6.0


@dataclass
class Refusals:
    """Sizes that eager itself refuses, for the report."""

    count: int = 0
    first: str = ""

    def add(self, sizes: Mapping[str, int], error: str) -> None:
        if not self.count:
            self.first = f"{shown(sizes)}: {error}"
        self.count += 1


def shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "the example's sizes"
