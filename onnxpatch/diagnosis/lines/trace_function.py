"""Watching Python run: a trace function in force for a block, whatever was in force before it given back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def tracing_with(follow: Callable[..., Any]) -> Iterator[None]:
    """Inside the block, in this thread, `follow` is sys.settrace's function; the one before comes back in any case."""
    before = sys.gettrace()
    sys.settrace(follow)
    try:
        yield
    finally:
        sys.settrace(before)
