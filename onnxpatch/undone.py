"""Putting something back at the end of a block, whatever line of the kit a KeyboardInterrupt comes at."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` at the end of the block; again, where an interrupt kept it from its end.

    So `undo` may be called again without harm, and before what it undoes was done: the change is made in the block.
    """
    done = False
    try:
        try:
            yield
        finally:
            undo()
            done = True
    finally:
        if not done:
            undo()
