"""`run_as_written`: functions that torch.compile made run as they were written, while torch.jit.trace runs a model.

torch refuses them there. It runs them as they were written inside of a symbolic trace of torch.fx, which is
`torch.fx._symbolic_trace._is_fx_tracing_flag`, if `torch._dynamo.config.error_on_nested_fx_trace` is off. If either
moves, a model that calls such a function is refused under trace, as torch refuses it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from onnxpatch.undone import Shared, undone

__all__ = ["run_as_written"]


def run_as_written() -> contextlib.AbstractContextManager[None]:
    """A context in which a call of a compiled function runs the original one, its patches included."""
    return _AS_WRITTEN.held()


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    dynamo: Any = sys.modules.get("torch._dynamo")
    fx: Any = sys.modules.get("torch.fx._symbolic_trace")
    # Before torch._dynamo is imported, which takes two seconds, nothing can have been compiled.
    if not hasattr(getattr(dynamo, "config", None), "error_on_nested_fx_trace") or not hasattr(
        fx, "_is_fx_tracing_flag"
    ):
        yield
        return
    before = fx._is_fx_tracing_flag

    def put_back() -> None:
        fx._is_fx_tracing_flag = before

    with undone(put_back), dynamo.config.patch(error_on_nested_fx_trace=False):
        fx._is_fx_tracing_flag = True
        yield


_AS_WRITTEN = Shared(_as_written)  # torch's flag is one for all threads
