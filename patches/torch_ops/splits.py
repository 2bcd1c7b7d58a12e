"""split and chunk into parts of dynamic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch
from onnxpatch.formulas.symbolic import example_of, symbolic


class _Stages(torch.nn.Module):
    """Stages that are stacked along the batch and split again."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        stacked = torch.cat([x, x * 2, x.square()])
        return stacked.split(x.shape[0])


@patch(
    "torch.split",
    "torch.Tensor.split",
    name="symbolic-split",
    why="Cannot split using values in 'split' attribute: x.split(batch) keeps the batch of the example; "
    "Error during constant folding for node (::SplitToSequence)",
    link="https://github.com/pytorch/pytorch/issues/27551",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Stages,
        lambda: [(torch.randn(batch, 3),) for batch in (2, 5, 1)],
        ({0: "batch"},),
        fails=("dynamo", "trace"),
        reason="NoneType|Cannot split using values",
        unchanged="fixed sizes",
    ),
)
def split(
    original: Callable[..., tuple[Tensor, ...]], tensor: Tensor, split_size_or_sections: Any, dim: int = 0
) -> tuple[Tensor, ...]:
    """Gives as many parts as the example has; their size stays dynamic."""
    size = split_size_or_sections
    if not symbolic(size):
        return NotImplemented
    # A graph has a fixed number of outputs, so the number of parts has to be the example's.
    parts = _count(original, tensor, size, dim)
    return tuple(_part(tensor, size * index, size * (index + 1), dim) for index in range(parts))


def _count(original: Callable[..., tuple[Tensor, ...]], tensor: Tensor, size: Any, dim: int) -> int:
    if exporting() == "trace":
        return len(original(tensor, int(size), dim))
    return int((tensor.shape[dim] + size - 1) // size)  # torch.export records a guard for the number of parts


def _part(tensor: Tensor, start: object, end: object, dim: int) -> Tensor:
    place = (slice(None),) * (dim % tensor.dim())
    return tensor[(*place, slice(start, end))]


class _Halves(torch.nn.Module):
    """Two halves of a sequence, the second one shorter where the length is odd, three parts, and one."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first, second = torch.cat(x.chunk(1)).chunk(2, 1)
        return first.sum(1) * second.sum(1), *(part.amax(0) for part in torch.chunk(x, 3, dim=1))


@patch(
    "torch.chunk",
    "torch.Tensor.chunk",
    name="chunks-of-a-dynamic-axis",
    why="Error during constant folding for node (::SplitToSequence): 'NoneType' object has no attribute 'ndim'",
    link="https://github.com/microsoft/onnxscript/issues/2543",
    exporters=("dynamo",),
    proof=Proof(
        _Halves,
        # Lengths that 2 and 3 chunks divide, that one of them does, and that neither does.
        lambda: [(torch.randn(batch, length, 2),) for batch, length in ((2, 6), (3, 9), (1, 5), (2, 14))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo",),
        reason="NoneType|SplitToSequence",
        unchanged="fixed sizes",
    ),
)
def chunk(
    original: Callable[..., tuple[Tensor, ...]], input: Tensor, chunks: object, dim: int = 0
) -> tuple[Tensor, ...]:
    """As many slices as there are chunks in the example."""
    length = input.shape[dim]
    example = example_of(length)
    if not isinstance(chunks, int | torch.SymInt) or chunks < 1 or not symbolic(length) or example is None:
        return NotImplemented
    chunks = int(chunks)  # a number that follows from sizes is the example's, with torch's guard
    # ceil(length / chunks), as torch cuts: the last chunk may be shorter, and some may be missing.
    size = (length + (chunks - 1)) // chunks
    whole = -(-example // chunks)
    last = -(-example // whole) - 1 if whole else 0
    return tuple(_part(input, size * at, size * (at + 1) if at < last else None, dim) for at in range(last + 1))
