"""A limit of memory on what runs: how it is written, and the operating system's own where it has one.

The system's limit is for what nobody counts: numpy's arrays, what kernels need meanwhile, a runtime's arena. Beyond it
an allocation fails with an error that Python can catch, and the machine stays as it is.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
from collections.abc import Iterator

import torch

from onnxpatch.errors import InputError
from onnxpatch.messages.text import said_by
from onnxpatch.process import undone

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_UNITS = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_OWN_THREADS = "onnxpatch-"  # what the names of this package's threads begin with
# Addresses that a process may ask for beside what it uses: stacks and heaps of threads that start meanwhile, libraries
# that are loaded.
_SPARE = 1 << 30
_SPARE_FOR_A_THREAD = 160 << 20
_REFUSED = re.compile(r"can't allocate memory|not enough memory|bad_alloc|Failed to allocate memory")


def checked_bytes(asked: float | str | None) -> float | None:
    """max_memory as a number of bytes; None where none was asked for. Raises InputError for what is no such number."""
    if asked is None:
        return None
    if isinstance(asked, str):
        written = re.fullmatch(r"\s*(\d+\.?\d*)\s*([a-zA-Z]*)\s*", asked)
        if written is not None and written[2].lower() in _UNITS:
            asked = float(written[1]) * _UNITS[written[2].lower()]
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not asked > 0:
        raise InputError(f"max_memory={asked!r}: give the bytes that one run may take, such as 2e9 or '2GB', or None")
    return float(asked)


@contextlib.contextmanager
def addresses_limited(bytes: float) -> Iterator[None]:
    """A block in which the process gets at most about `bytes` more memory than it has. Beyond it, allocations fail.

    Only on Linux, without CUDA, and where no other thread of Python runs, since the limit holds for all of them.
    """
    used = _addresses() if math.isfinite(bytes) and _is_alone() else None
    if used is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    threads = max(os.cpu_count() or 1, torch.get_num_threads())
    wanted = int(used + bytes) + _SPARE + threads * _SPARE_FOR_A_THREAD
    if before[0] != resource.RLIM_INFINITY and before[0] <= wanted:
        yield
        return
    with undone(lambda: resource.setrlimit(resource.RLIMIT_AS, before)):
        resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
        yield


def _addresses() -> int | None:
    """The bytes of the process's address space; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _is_alone() -> bool:
    if resource is None or torch.cuda.is_initialized():
        return False
    others = (one for one in threading.enumerate() if not one.name.startswith(_OWN_THREADS))
    return all(one is threading.current_thread() for one in others)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the system gave no more memory."""
    return isinstance(error, MemoryError) or _REFUSED.search(said_by(error)[:2000]) is not None


def peak_of_process() -> int | None:
    """The most bytes that this process has had in memory so far; None where the system does not say (Windows)."""
    if resource is None:
        return None
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if os.uname().sysname == "Darwin" else 1024)
