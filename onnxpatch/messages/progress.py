"""`progress=True`: one line on stderr that says how far a call is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from onnxpatch.messages.visible import one_line

Progress = Callable[[str, int, int], None]
_WIDTH = 72  # of the line, so that a shorter one covers a longer one before it


def shown(progress: Progress | bool | None) -> Progress | None:
    """What to call with (stage, done, of): the caller's own function, one that writes on stderr for True, or none."""
    if isinstance(progress, bool):
        return _written if progress else None
    return progress


def _written(stage: str, done: int, of: int) -> None:
    count = f" {done + 1} of {of}" if of else f" {done + 1}"
    line = f"onnxpatch: {one_line(stage)}{count}"[:_WIDTH]
    tell(f"\r{line:<{_WIDTH}}", end="\n" if of and done + 1 >= of else "")


def tell(text: str, end: str = "\n") -> None:
    """Print on stderr, if it is there and can be written: what is told changes nothing."""
    # print() takes None, a closed stderr, for stdout; a stream that Python code closed raises ValueError.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)
