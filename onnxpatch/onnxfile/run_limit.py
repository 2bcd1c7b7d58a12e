"""A limit on how long one run of a graph may take, since a file can have a Loop that never ends.

onnxruntime runs without Python's lock and cannot be interrupted by a signal. It reads `RunOptions.terminate` between
two nodes, also inside loops, so a thread sets that when the time is over. It does not stop inside one node.
onnx.reference is Python, and is interrupted by an alarm; that works in the main thread only.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile.arrays import Array, Output, Session
from onnxpatch.onnxfile.time_limit import TimeLimit, limited

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, RunOptions

    from onnxpatch.onnxfile.bfloat16 import BridgedSession

DEFAULT_SECONDS = 120.0  # for one run of a graph, on any machine: far more than the models of the tests need
_IDLE = 1.0  # seconds that the thread stays alive after the last run


def checked_limit(seconds: float | None) -> float | None:
    """`max_seconds` as a float; None for no limit (None or infinity). Raises InputError if it is not above 0."""
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"max_seconds={seconds!r}: give the seconds that one run of the graph may take, or None")
    return float(seconds)


class LimitedRuns:
    """A session whose runs take at most `seconds` each (None: no limit)."""

    def __init__(self, session: Session | InferenceSession | BridgedSession, seconds: float | None) -> None:
        self.session = session
        self.seconds = seconds
        self._deadlines = _Deadlines()

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array]) -> list[Output]:
        """As `Session.run`. Raises RunError with `stopped` set where the limit was reached."""
        if hasattr(self.session, "get_inputs"):  # an InferenceSession, or bfloat16's bridge around one
            return self._run_onnxruntime(self.session, names, feed)
        try:
            with limited(self.seconds):
                return self.session.run(names, feed)
        except TimeLimit:
            raise self._stopped_error() from None

    def _run_onnxruntime(
        self, session: InferenceSession | BridgedSession, names: Sequence[str] | None, feed: Mapping[str, Array]
    ) -> list[Output]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # its log would repeat the error, with the file's names not made safe to print
        if self.seconds is None:
            return session.run(names, feed, options)
        self._deadlines.add(options, time.monotonic() + self.seconds)
        try:
            return session.run(names, feed, options)
        except Exception:
            if options.terminate:
                raise self._stopped_error() from None
            raise
        finally:
            self._deadlines.remove(options)

    def _stopped_error(self) -> RunError:
        return RunError(
            f"the graph was stopped after {self.seconds:g} s, the limit for one run: it may have a loop that never "
            "ends; max_seconds= (--max-seconds) sets another limit",
            stopped=True,
        )


class _Deadlines:
    """Ends runs at their deadlines, from one thread that lives while there are runs.

    One thread for all runs of a session: starting one for each would take longer than a small graph does.
    """

    def __init__(self) -> None:
        self._pending: dict[int, tuple[float, RunOptions]] = {}  # by id: RunOptions cannot be hashed
        self._lock = threading.Lock()
        self._running = False

    def add(self, options: RunOptions, deadline: float) -> None:
        """Have the run with these options ended at `deadline`, by time.monotonic()."""
        with self._lock:
            self._pending[id(options)] = (deadline, options)
            if not self._running:
                self._running = True
                threading.Thread(target=self._loop, name="onnxpatch-run-limit", daemon=True).start()

    def remove(self, options: RunOptions) -> None:
        """Forget a run that has come to its end."""
        with self._lock:
            self._pending.pop(id(options), None)

    def _loop(self) -> None:
        """Until nothing has run for `_IDLE` seconds; the next run then starts another thread."""
        idle_since: float | None = None
        while True:
            now = time.monotonic()
            with self._lock:
                for deadline, options in self._pending.values():
                    if now >= deadline:
                        options.terminate = True
                idle_since = (idle_since or now) if not self._pending else None
                if idle_since is not None and now - idle_since >= _IDLE:
                    self._running = False
                    return
                ahead = [deadline - now for deadline, _ in self._pending.values() if deadline > now]
            # At most a quarter of a second: a run with a nearer deadline may begin meanwhile.
            time.sleep(max(0.001, min([_IDLE / 4, *ahead])))
