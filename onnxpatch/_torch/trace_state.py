"""Private torch APIs of a running torch.jit.trace: whether one runs, a pause of it, and nodes that it cannot write.

- `torch._C._get_tracing_state` and its setter carry the state of the running trace. If they move, stored constants,
  layer norm over a size read off its input, nodes that the kit writes, and branches fail with AttributeError under the
  trace exporter; nothing else uses them.
- `torch._C.OptionalType.ofTensor` gives a `prim::Constant` the type "no tensor", which the exporter writes as an
  omitted input. If it moves, patches that omit an input in the middle (Resize without regions, Clip without a bound)
  fail with AttributeError under the trace exporter; nothing else uses it.
- The graph that a symbolic function gets is a `GraphContext`: a dataclass with the `block` into which `op` writes, and
  a block is a side of an `If`. If they move, Fourier transforms of a dynamic length fail under the trace exporter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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


def absent_input(graph: Any) -> object:
    """A value of the graph for an optional input that is omitted.

    graph: the first argument of a symbolic function; its `op` adds a node.
    """
    none = graph.op("prim::Constant")
    none.setType(torch._C.OptionalType.ofTensor())
    return none


def if_node(graph: Any, condition: Any, sides: Sequence[Callable[[Any], Any]]) -> Any:
    """An If with one output. sides: called with the graph whose `op` writes into that side; each returns its value."""
    made = graph.op("If", condition)
    for side in sides:
        block = made.node().addBlock()
        block.registerOutput(side(dataclasses.replace(graph, block=block)))
    return made
