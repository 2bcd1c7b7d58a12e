"""Private torch APIs that tell a running torch.jit.trace, and pause it.

`torch._C._get_tracing_state` and its setter carry the state of the running trace. If they move, stored constants, layer
norm over a size read off its input, nodes that the kit writes, and branches fail with AttributeError under the trace
exporter; nothing else uses them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from onnxpatch._torch.function_modes import unseen
from onnxpatch.process import undone


def running_trace() -> object:
    """The trace that runs at the moment, the same object each time while somebody holds it; None where none runs."""
    return torch._C._get_tracing_state()


class _Parts(threading.local):
    depth = 0


_parts = _Parts()


@contextlib.contextmanager
def tracing_parts() -> Iterator[None]:
    """A context in which bodies of loops and sides of an `If` are traced, each by itself."""
    before = _parts.depth
    with undone(lambda: setattr(_parts, "depth", before)):
        _parts.depth = before + 1
        yield


def traces_a_part() -> bool:
    """Whether the running trace is one of a loop's body or of a side of an `If`, and not the export's."""
    return _parts.depth > 0


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """A context in which torch.jit.trace records nothing. Another trace may run inside it."""
    state = torch._C._get_tracing_state()
    with undone(lambda: torch._C._set_tracing_state(state)):  # type: ignore[attr-defined]
        torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
        yield


@contextlib.contextmanager
def tracing_paused() -> Iterator[None]:
    """As `untraced`, and without torch function modes."""
    # The kit's own modes would take what runs inside for calls of the model.
    with untraced(), unseen():
        yield
