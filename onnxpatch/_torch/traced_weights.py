"""Keeps large weights out of the TorchScript exporter's file, so that they are not copied on their way into it.

`torch.onnx.export(dynamo=False)` copies all weights into a protobuf message, that into a string, the string into Python
bytes, and parses these: three times the weights on top of the model's own.

- `torch._C._jit_pass_onnx_deduplicate_initializers`: the last step before the message is made. What it returns is
  written as initializers; what is missing there becomes an input of the graph. If it moves, the file is made as torch
  makes it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from onnxpatch.undone import Shared, undone

__all__ = ["weights_left_out"]


class _Asked(NamedTuple):
    """What a thread asked for, and what was left out for it."""

    least: float
    smallest: int
    found: dict[str, torch.Tensor]


_asked: dict[int, _Asked] = {}


@contextlib.contextmanager
def weights_left_out(least: float, smallest: int) -> Iterator[dict[str, torch.Tensor]]:
    """A context in which the TorchScript exporter, called in this thread, leaves large weights out of its file.

    Gives them by name, each an input of the graph now: those of more than `smallest` bytes, where they have `least`
    bytes together.
    """
    thread, found = threading.get_ident(), dict[str, torch.Tensor]()
    with _DIVIDED.held(), undone(lambda: _asked.pop(thread, None)):
        _asked[thread] = _Asked(least, smallest, found)
        yield found


@contextlib.contextmanager
def _divided() -> Iterator[None]:
    original: Any = getattr(torch._C, "_jit_pass_onnx_deduplicate_initializers", None)
    if original is None:
        yield
        return

    def divided(graph: object, weights: dict[str, torch.Tensor], *rest: object) -> dict[str, torch.Tensor]:
        kept: dict[str, torch.Tensor] = original(graph, weights, *rest)
        # The name is replaced for the whole process, and another thread may export too.
        asked = _asked.get(threading.get_ident())
        if asked is None:
            return kept
        large = {name: one for name, one in kept.items() if _can_be_written(one) and one.nbytes > asked.smallest}
        if sum(one.nbytes for one in large.values()) >= asked.least:
            asked.found.update(large)
        return {name: one for name, one in kept.items() if name not in asked.found}

    with undone(lambda: setattr(torch._C, "_jit_pass_onnx_deduplicate_initializers", original)):
        torch._C._jit_pass_onnx_deduplicate_initializers = divided  # type: ignore[assignment]
        yield


_DIVIDED = Shared(_divided)


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Whether its bytes are what an ONNX file has."""
    return tensor.layout == torch.strided and not tensor.is_quantized
