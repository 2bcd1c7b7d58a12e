"""A limit on how long one run of onnxruntime may take, since a file can have a Loop that never ends.

onnxruntime runs without Python's lock and cannot be interrupted by a signal. It reads `RunOptions.terminate` between
two nodes, also inside loops, so a thread sets that when the time is over. It does not stop inside one node.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.arrays import Array, Output
from onnxpatch.onnxfile.runtimes.interface import stopped

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, RunOptions

    from onnxpatch.onnxfile.bfloat16 import BridgedSession

_IDLE = 1.0  # seconds that the thread stays alive after the last run


class TerminatedRuns:
    """A session of onnxruntime whose runs end at a limit."""

    def __init__(self, session: InferenceSession | BridgedSession) -> None:
        self._session = session
        self._deadlines = _Deadlines()

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        """As `InferenceSession.run`; seconds: the limit, None for none. Raises RunError with `stopped` set there."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # its log would repeat the error, with the file's names not made safe to print
        if seconds is None:
            return self._session.run(names, feed, options)
        self._deadlines.add(options, time.monotonic() + seconds)
        try:
            return self._session.run(names, feed, options)
        except Exception:
            if options.terminate:
                raise stopped(seconds) from None
            raise
        finally:
            self._deadlines.remove(options)


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
