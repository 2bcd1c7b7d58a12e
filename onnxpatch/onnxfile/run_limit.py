"""A limit on how long one run of a graph may take: a file can hold a Loop that never ends."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile.time_limit import TimeLimit, limited

DEFAULT_SECONDS = 120.0  # for one run of a graph, on whatever machine: far more than any model of ours needs
_TICK = 1.0  # seconds that the watching thread stays alive after the last run


def checked_limit(seconds: float | None) -> float | None:
    """`max_seconds` as it was asked for; None: no limit. Raises InputError for what is no positive number."""
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"max_seconds={seconds!r}: give the seconds that one run of the graph may take, or None")
    return float(seconds)


class LimitedRuns:
    """Runs a session, each run no longer than `seconds` (None: no limit).

    onnxruntime is asked to stop by a thread that watches; it does so between two nodes, in loops too, but not inside
    one node. onnx.reference is stopped by an alarm, in the main thread alone.
    """

    def __init__(self, session: Any, seconds: float | None) -> None:
        self.session = session
        self.seconds = seconds
        self._watch = _Watch()

    def run(self, names: Any, feed: Mapping[str, Any]) -> list[Any]:
        """As InferenceSession.run. Raises RunError with `stopped` where the limit was reached."""
        if hasattr(self.session, "get_inputs"):  # an InferenceSession, or bfloat16's bridge around one
            return self._onnxruntime(names, feed)
        try:
            with limited(self.seconds):
                found: list[Any] = self.session.run(names, feed)
                return found
        except TimeLimit:
            raise self._stopped() from None

    def _onnxruntime(self, names: Any, feed: Mapping[str, Any]) -> list[Any]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # its log would repeat the error, with the file's names as they are
        if self.seconds is None:
            found: list[Any] = self.session.run(names, feed, options)
            return found
        self._watch.add(options, time.monotonic() + self.seconds)
        try:
            found = self.session.run(names, feed, options)
            return found
        except Exception:
            if options.terminate:
                raise self._stopped() from None
            raise
        finally:
            self._watch.remove(options)

    def _stopped(self) -> RunError:
        return RunError(
            f"the graph was stopped after {self.seconds:g} s, the limit for one run: it may hold a loop that never "
            "ends; max_seconds= (--max-seconds) sets another limit",
            stopped=True,
        )


class _Watch:
    """One thread while there are runs, since a thread for each run takes longer than a small graph."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[float, Any]] = {}
        self._lock = threading.Lock()
        self._running = False

    def add(self, options: Any, end: float) -> None:
        with self._lock:
            self._ends[id(options)] = (end, options)
            if not self._running:
                self._running = True
                threading.Thread(target=self._loop, name="onnxpatch-run-limit", daemon=True).start()

    def remove(self, options: Any) -> None:
        with self._lock:
            self._ends.pop(id(options), None)

    def _loop(self) -> None:
        idle_since: float | None = None
        while True:
            now = time.monotonic()
            with self._lock:
                for end, options in self._ends.values():
                    if now >= end:
                        options.terminate = True
                idle_since = (idle_since or now) if not self._ends else None
                if idle_since is not None and now - idle_since >= _TICK:
                    self._running = False
                    return
                ahead = [end - now for end, options in self._ends.values() if end > now]
            time.sleep(max(0.001, min([_TICK / 4, *ahead])))
