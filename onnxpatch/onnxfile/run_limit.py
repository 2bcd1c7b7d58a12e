"""`max_seconds`: how long one run of a graph may take, since a file can have a loop that never ends."""

from __future__ import annotations

import math

from onnxpatch.errors import InputError

DEFAULT_SECONDS = 120.0  # for one run of a graph, on any machine: far more than the models of the tests need


def checked_limit(seconds: float | None) -> float | None:
    """`max_seconds` as a float; None for no limit (None or infinity). Raises InputError if it is not above 0."""
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"max_seconds={seconds!r}: give the seconds that one run of the graph may take, or None")
    return float(seconds)
