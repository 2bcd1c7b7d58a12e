"""Suppresses what torch prints during an export: graphs, log lines, warnings about its own code.

- `torch._C._jit_onnx_log`: the TorchScript exporter prints whole graphs to stdout from C++, and its switch against that
  has no effect. If it moves, the graphs are printed.
- torch.export prints the graph so far to stderr when it fails. What a module named torch.* writes to stderr is
  dropped, which needs no private API.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

import torch

from onnxpatch.undone import Shared, undone

__all__ = ["no_graphs_printed", "quiet_exporters", "quiet_torch"]

_LIBRARIES = ("torch", "onnxscript", "onnx_ir")
_OWN_CODE = r"(torch|onnxscript|onnx_ir|copyreg)\b"  # copyreg: pickling torch's own classes warns there


@contextlib.contextmanager
def quiet_torch(asked: bool = False) -> Iterator[None]:
    """A context in which torch prints nothing, in this thread. Output and warnings of the model's code are kept.

    asked: print everything; so does the logger `onnxpatch` at level DEBUG.
    """
    # Level 0 is a logger that nobody has set.
    if asked or 0 < logging.getLogger("onnxpatch").level <= logging.DEBUG:
        yield
        return
    here = threading.get_ident(), next(_numbers)
    with quiet_exporters(), _NO_WARNINGS.held(), undone(lambda: _quiet.discard(here)):
        _quiet.add(here)
        yield


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stderr(_Stderr(sys.stderr)):
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", module=_OWN_CODE)
        yield


_NO_WARNINGS = Shared(_no_warnings)
_numbers = itertools.count()
# (thread, number of its context): contexts nest.
_quiet: set[tuple[int, int]] = set()


class _Stderr:
    """stderr without what torch's modules print, for the threads that asked for it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, unless a function of torch called this."""
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if caller.partition(".")[0] == "torch" and threading.get_ident() in dict(_quiet.copy()):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """A context in which the exporters neither print graphs nor log, in this thread."""
    thread = threading.get_ident()
    loggers = ["", *(name for name in logging.root.manager.loggerDict if name.startswith(_LIBRARIES))]
    # On the handlers: a record of a child logger passes the parents' handlers, but not the parents' filters.
    handlers = {h for name in loggers for h in logging.getLogger(name).handlers}

    def silent(record: logging.LogRecord) -> bool:
        # Handlers serve the whole process: records of other threads and libraries pass.
        return record.thread != thread or not record.name.startswith(_LIBRARIES)

    def audible() -> None:
        for handler in handlers:
            handler.removeFilter(silent)

    with undone(audible):
        for handler in handlers:
            handler.addFilter(silent)
        with no_graphs_printed():
            yield


@contextlib.contextmanager
def no_graphs_printed() -> Iterator[None]:
    """A context in which the TorchScript exporter prints no graph to stdout."""
    with _NO_GRAPHS.held():
        yield


@contextlib.contextmanager
def _no_graphs() -> Iterator[None]:
    write: Any = getattr(torch._C, "_jit_onnx_log", None)
    if write is None:
        yield
        return
    with undone(lambda: setattr(torch._C, "_jit_onnx_log", write)):
        torch._C._jit_onnx_log = lambda *_: None
        yield


_NO_GRAPHS = Shared(_no_graphs)
