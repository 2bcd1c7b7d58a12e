"""How long a piece of work took, on a machine that has other work to do as well."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from its creation on.

    `seconds` is the wall clock's time or the processor's, whichever is less: neither waiting for other programs nor
    threads that run side by side count.
    """

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        return min(time.perf_counter() - self._wall, time.process_time() - self._processor)
