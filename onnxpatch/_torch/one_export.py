"""`one_export`: one thread at a time runs torch's exporters; the others wait.

torch keeps the state of an export in the process: two at once end in its internal assertions, in each other's modules,
or with the builtins of the first kept for good by the second. Eager and runtimes need no lock.

- `torch._export.non_strict_utils._tensor_min_max`: torch.export replaces `builtins.min` and `max` by a partial of it,
  and `math.pow` by a function of that module. What exports outside of onnxpatch, or an interrupt, left of them is put
  back at the end of an export. If it moves, such leftovers stay.
- `torch.onnx._internal.torchscript_exporter._globals.GLOBALS`, `torch.compiler._is_exporting_flag` and
  `_is_compiling_flag`: set back in a process that was forked while another thread exported. If they move, exports in
  such a process fail. What else torch.export had replaced there cannot be found: `forked_inside()` says so.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxpatch._torch.replaced import Replaced
from onnxpatch.process import process_lock, release, undone

__all__ = ["forked_inside", "one_export", "public_export_alone"]

_UTILS = "torch._export.non_strict_utils"
_lock = process_lock()
_pow = math.pow
_thread: list[int] = []  # that has the lock
_forked_inside: list[bool] = []


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
        _thread.append(this)
        yield


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


_ALONE = Replaced("torch.onnx.export", _alone)


def public_export_alone() -> contextlib.AbstractContextManager[None]:
    """A context in which torch.onnx.export, by whomever it is called, is in `one_export`."""
    return _ALONE.held()
