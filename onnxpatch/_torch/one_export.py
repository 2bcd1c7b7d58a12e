"""Changes to the process while an export runs: exports in other threads wait, and torch prints nothing.

torch keeps the state of an export in the process: two at once end in its internal assertions, in each other's modules,
or with the builtins of the first kept for good by the second. Eager and runtimes need no lock. `Replaced` is an
attribute of torch that is another one while threads ask for it, each with a value of its own.

- `torch._export.non_strict_utils._tensor_min_max`: torch.export replaces `builtins.min` and `max` by a partial of it,
  and `math.pow` by a function of that module. What exports outside of onnxpatch, or an interrupt, left of them is put
  back at the end of an export. If it moves, such leftovers stay.
- `torch.onnx._internal.torchscript_exporter._globals.GLOBALS`, `torch.compiler._is_exporting_flag` and
  `_is_compiling_flag`: set back in a process that was forked while another thread exported. If they move, exports in
  such a process fail. What else torch.export had replaced there cannot be found: `forked_inside()` says so.
- `torch/export/_trace.py`, `torch/onnx/_internal`: a thread that has a frame of these files exports by a call of the
  user's. If they move, it is not waited for.
- `torch._C._jit_onnx_log`: the TorchScript exporter prints whole graphs to stdout from C++, and its switch against that
  has no effect. If it moves, the graphs are printed.
- torch.export prints the graph so far to stderr when it fails. What a module named torch.* writes to stderr is
  dropped, which needs no private API.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import itertools
import logging
import math
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxpatch._torch.relied_on import find
from onnxpatch.process import Shared, filtered, printed, process_lock, release, undone

_numbers = itertools.count()
_LIBRARIES = ("torch", "onnxscript", "onnx_ir")
_OWN_CODE = re.compile(r"(torch|onnxscript|onnx_ir|copyreg)\b")  # copyreg: pickling torch's own classes warns there
_UTILS = "torch._export.non_strict_utils"
_PAUSE = 0.02  # seconds
_EXPORTERS = tuple(
    os.path.join(os.path.dirname(torch.__file__), *part)
    for part in (("export", "_trace.py"), ("onnx", "_internal"), ("onnx", "utils.py"))  # the last before torch 2.9
)
_lock = process_lock()
_pow = math.pow
_thread: list[int] = []  # that has the lock
_forked_inside: list[bool] = []


class Replaced:
    """path: dotted, of a module's or a class's attribute. stand_in: makes the other one of what was there."""

    def __init__(self, path: str, stand_in: Callable[[Any], Any]) -> None:
        self._path, self._stand_in = path, stand_in
        self._shared = Shared(self._replaced)
        self._asked: dict[int, tuple[int, Any]] = {}  # by the number of the context: contexts nest

    @functools.cached_property
    def _owner(self) -> Any:
        """What has the attribute; None where this torch has none of it."""
        try:
            return find(self._path.rpartition(".")[0])
        except LookupError:
            return None

    @contextlib.contextmanager
    def held(self, value: Any = True) -> Iterator[None]:
        """A context in which the attribute is the other one, and `here` has `value` in this thread."""
        number = next(_numbers)
        with self._shared.held(), undone(lambda: self._asked.pop(number, None)):
            self._asked[number] = threading.get_ident(), value
            yield

    def here(self) -> list[Any]:
        """The values that this thread asked with, the outermost context's first."""
        return [value for thread, value in list(self._asked.values()) if thread == threading.get_ident()]

    @contextlib.contextmanager
    def _replaced(self) -> Iterator[None]:
        owner, name = self._owner, self._path.rpartition(".")[2]
        if not hasattr(owner, name):
            yield
            return
        before = vars(owner)[name]  # of a class method, the descriptor
        with undone(lambda: setattr(owner, name, before)):
            setattr(owner, name, self._stand_in(before))
            yield


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


no_graphs_printed = Replaced("torch._C._jit_onnx_log", lambda write: lambda *_: None).held
"""A context in which the TorchScript exporter prints no graph to stdout."""


@contextlib.contextmanager
def one_export() -> Iterator[None]:
    """A context that one thread at a time can be in. Inside itself it does nothing: a forward may export."""
    this = threading.get_ident()
    if this in _thread:
        yield
        return

    def leave() -> None:
        # Not, if an interrupt came while this thread waited: another one exports.
        if this in _thread:
            # Nor where one that the lock does not know of runs: torch.export.export in a thread of the user's.
            if not getattr(torch.compiler, "_is_exporting_flag", False):
                _put_back()
            _thread.clear()
        release(_lock)

    with undone(leave):
        _lock.acquire()
        # Not inside of such a call, whose thread would wait for itself, or for one that waits for it.
        while (running := _in_exporters()) and this not in running:
            release(_lock)
            time.sleep(_PAUSE)
            _lock.acquire()
        _thread.append(this)
        yield


def _in_exporters() -> set[int]:
    """Threads that run torch's exporters, by calls that no lock knows of: the user's own torch.onnx.export."""
    return {
        thread
        for thread, frame in sys._current_frames().items()
        if any(one.f_code.co_filename.startswith(_EXPORTERS) for one, _ in traceback.walk_stack(frame))
    }


def _put_back() -> None:
    """Set back what torch.export replaces in the process, however often it did."""
    for name in ("min", "max"):
        found = now = getattr(builtins, name)
        while isinstance(found, functools.partial) and found.func.__module__ == _UTILS:
            found = found.keywords["real_callable"]
        if found is not now:
            setattr(builtins, name, found)
    if math.pow is not _pow and math.pow.__module__ == _UTILS:
        math.pow = _pow


def _in_child() -> None:
    """In a forked process the exports of other threads never end."""
    if _thread in ([], [threading.get_ident()]):
        return
    _thread.clear()
    _forked_inside[:] = [bool(getattr(torch.compiler, "_is_exporting_flag", False))]
    _put_back()
    for flag in ("_is_exporting_flag", "_is_compiling_flag"):
        if getattr(torch.compiler, flag, False):
            setattr(torch.compiler, flag, False)
    with contextlib.suppress(ImportError, AttributeError):
        from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

        GLOBALS.in_onnx_export = False


def forked_inside() -> bool:
    """Whether this process was forked while another thread was in torch.export, which cannot run here then."""
    return _forked_inside == [True]


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_in_child)


# ------------------------------------------------------------------ torch.onnx.export, called by the user
def _alone(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def export(*args: Any, **kwargs: Any) -> Any:
        with one_export():
            return original(*args, **kwargs)

    return export


public_export_alone = Replaced("torch.onnx.export", _alone).held
"""A context in which torch.onnx.export, by whomever it is called, is in `one_export`."""
