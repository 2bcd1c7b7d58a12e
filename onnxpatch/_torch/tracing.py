"""Private torch APIs that pause or mend a running torch.jit.trace: which, why, and what happens when they move.

`torch._C._get_tracing_state` and its setter carry the state of the running trace; `TracingState.graph` is what has been
recorded. If they move, stored constants, layer norm over a size read off its input, branches, and models that catch an
error fail with AttributeError under the trace exporter; nothing else uses them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Nothing is recorded by torch.jit.trace inside the block; traces of its own may be made there."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)  # type: ignore[attr-defined]


@contextlib.contextmanager
def tracing_paused() -> Iterator[None]:
    """As `untraced`, and torch function modes see nothing either."""
    with untraced(), torch._C.DisableTorchFunction():
        yield


class TraceKept(TorchFunctionMode):
    """A torch call inside the block may raise and be caught by the model: the trace goes on afterwards.

    torch.jit.trace puts its state away for the time of a call and does not fetch it back when the call raises; the
    process then dies of a null pointer (signal 11). What the call had begun to record goes too. lost: the errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[Exception] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        state = torch._C._get_tracing_state()
        try:
            return function(*args, **(kwargs or {}))
        except Exception as error:
            if state is not None and torch._C._get_tracing_state() is None:
                torch._C._set_tracing_state(state)  # type: ignore[attr-defined]
                _drop_unfinished(state.graph())
                self.lost.append(error)
            raise


def _drop_unfinished(graph: Any) -> None:
    """The node of a call that raised has no outputs yet, and the tracer fails over it."""
    begun = graph.insertPoint().prev()
    if begun.kind().startswith("aten::") and begun.outputsSize() == 0:
        begun.destroy()
