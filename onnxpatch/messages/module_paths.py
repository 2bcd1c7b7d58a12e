"""The path of a module in the patched model that is running, for messages of code that is handed the module alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class _Named(threading.local):
    path_of: Callable[[object], str] | None = None


_named = _Named()


@contextlib.contextmanager
def paths_named_by(path_of: Callable[[object], str]) -> Iterator[None]:
    """Inside the block, in this thread, `module_path` answers as `path_of`: set while a patched model runs."""
    before, _named.path_of = _named.path_of, path_of
    try:
        yield
    finally:
        _named.path_of = before


def module_path(module: object) -> str:
    """The module's path in the patched model that is running, for messages; "" for its root, or where none runs."""
    return _named.path_of(module) if _named.path_of else ""
