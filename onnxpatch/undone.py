"""Undoes a change at the end of a block, even if a KeyboardInterrupt comes while it is being undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` at the end of the block; again, where an interrupt kept it from its end.

    So `undo` may be called again without harm, and before what it undoes was done: the change is made in the block.
    """
    # Two levels: KeyboardInterrupt can come between any two instructions, those of a `finally` included.
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
