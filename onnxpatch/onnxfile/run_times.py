"""Compares how long two graphs take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_ROUNDS = 15


def times_as_long(one: Callable[[], object], other: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """How many times as long `one` takes as `other`: the ratio of the medians of processor time in this thread.

    Both run in turns, after two rounds that do not count, so that other work on the machine meets both alike.
    """
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 2):
        for run, times in zip((one, other), taken, strict=True):
            # Of this thread only: what other threads of the runtime compute is counted for neither.
            began = time.thread_time()
            run()
            if turn > 1:
                times.append(time.thread_time() - began)
    return statistics.median(taken[0]) / max(statistics.median(taken[1]), 1e-9)
