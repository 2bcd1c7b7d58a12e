"""The path of a module in the patched model that is running, such as `encoder.blocks.3`.

A patch's code is given the module alone, which does not know its own path. While a patched model runs, its runtime
answers for it: `paths_named_by` sets that up, for this thread, and `module_path` asks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from onnxpatch.undone import undone


class _CurrentModel(threading.local):
    path_of: Callable[[object], str] | None = None


_current = _CurrentModel()


@contextlib.contextmanager
def paths_named_by(path_of: Callable[[object], str]) -> Iterator[None]:
    """Make `module_path` answer what `path_of` does, inside the block and in this thread."""
    before = _current.path_of
    with undone(lambda: setattr(_current, "path_of", before)):
        _current.path_of = path_of
        yield


def module_path(module: object) -> str:
    """The module's path in the patched model that is running; "" for its root, and where no patched model runs."""
    return _current.path_of(module) if _current.path_of else ""
