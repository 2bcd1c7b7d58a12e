"""Keeps large weights out of the TorchScript exporter's file, so that they are not copied on their way into it.

`torch.onnx.export(dynamo=False)` copies all weights into a protobuf message, that into a string, the string into Python
bytes, and parses these: three times the weights on top of the model's own.

- `torch._C._jit_pass_onnx_deduplicate_initializers`: the last step before the message is made. What it returns is
  written as initializers; what is missing there becomes an input of the graph. If it moves, the file is made as torch
  makes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from onnxpatch._torch.replaced import Replaced

__all__ = ["weights_left_out"]


class _Asked(NamedTuple):
    """What a thread asked for, and what was left out for it."""

    least: float
    smallest: int
    found: dict[str, torch.Tensor]


@contextlib.contextmanager
def weights_left_out(least: float, smallest: int) -> Iterator[dict[str, torch.Tensor]]:
    """A context in which the TorchScript exporter, called in this thread, leaves large weights out of its file.

    Gives them by name, each an input of the graph now: those of more than `smallest` bytes, where they have `least`
    bytes together.
    """
    found = dict[str, torch.Tensor]()
    with _DIVIDED.held(_Asked(least, smallest, found)):
        yield found


def _dividing(original: Callable[..., dict[str, torch.Tensor]]) -> Callable[..., dict[str, torch.Tensor]]:
    def divided(graph: object, weights: dict[str, torch.Tensor], *rest: object) -> dict[str, torch.Tensor]:
        kept = original(graph, weights, *rest)
        for asked in _DIVIDED.here()[-1:]:
            large = {name: one for name, one in kept.items() if _can_be_written(one) and one.nbytes > asked.smallest}
            if sum(one.nbytes for one in large.values()) >= asked.least:
                asked.found.update(large)
            kept = {name: one for name, one in kept.items() if name not in asked.found}
        return kept

    return divided


_DIVIDED = Replaced("torch._C._jit_pass_onnx_deduplicate_initializers", _dividing)


def _can_be_written(tensor: torch.Tensor) -> bool:
    """Whether its bytes are what an ONNX file has."""
    return tensor.layout == torch.strided and not tensor.is_quantized
