"""Suppresses what torch prints during an export: graphs, log lines, warnings about its own code.

- `torch._C._jit_onnx_log`: the TorchScript exporter prints whole graphs to stdout from C++, and its switch against that
  has no effect. If it moves, the graphs are printed.
- torch.export prints the graph so far to stderr when it fails. What a module named torch.* writes to stderr is
  dropped, which needs no private API.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator

from onnxpatch._torch.replaced import Replaced
from onnxpatch.process import filtered, printed, undone

__all__ = ["no_graphs_printed", "quiet_exporters", "quiet_torch"]

_LIBRARIES = ("torch", "onnxscript", "onnx_ir")
_OWN_CODE = re.compile(r"(torch|onnxscript|onnx_ir|copyreg)\b")  # copyreg: pickling torch's own classes warns there


@contextlib.contextmanager
def quiet_torch(asked: bool = False) -> Iterator[None]:
    """A context in which torch prints nothing, in this thread. Output and warnings of the model's code are kept.

    asked: print everything; so does the logger `onnxpatch` at level DEBUG.
    """
    # Level 0 is a logger that nobody has set.
    if asked or 0 < logging.getLogger("onnxpatch").level <= logging.DEBUG:
        yield
        return
    old, own = filtered("ignore", DeprecationWarning), filtered("ignore", module=_OWN_CODE)
    with quiet_exporters(), old, own, printed(_by_torch):
        yield


def _by_torch(stream: str, _text: str, writer: str) -> bool:
    return stream == "stderr" and writer.partition(".")[0] == "torch"


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """A context in which the exporters neither print graphs nor log, in this thread."""
    thread = threading.get_ident()
    # A list first: another thread may make a logger at this moment.
    loggers = ["", *(name for name in list(logging.root.manager.loggerDict) if name.startswith(_LIBRARIES))]
    # On the handlers: a record of a child logger passes the parents' handlers, but not the parents' filters.
    handlers = {h for name in loggers for h in logging.getLogger(name).handlers}
    # Python's own, for processes in which nobody has set up logging.
    handlers |= {logging.lastResort} if logging.lastResort is not None else set()

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


def no_graphs_printed() -> contextlib.AbstractContextManager[None]:
    """A context in which the TorchScript exporter prints no graph to stdout."""
    return _NO_GRAPHS.held()


_NO_GRAPHS = Replaced("torch._C._jit_onnx_log", lambda write: lambda *_: None)
