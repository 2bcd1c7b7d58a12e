"""Splits into parts and chunks, and joins as columns and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, op, untraced
from onnxpatch.decisions.ask import calling_frame
from onnxpatch.decisions.functions_run import iterated
from onnxpatch.formulas.symbolic import example_of, symbolic
from onnxpatch.patching.proof import matrices, numbers

_ATEN = torch.ops.aten


def _stages(x: Tensor) -> tuple[Tensor, ...]:
    """Stages that are stacked along the batch and split again."""
    stacked = torch.cat([x, x * 2, x.square()])
    return stacked.split(x.shape[0])


@op(
    "split",
    name="symbolic-split",
    why="Cannot split using values in 'split' attribute: x.split(batch) keeps the batch of the example; "
    "Error during constant folding for node (::SplitToSequence)",
    reason="NoneType|Cannot split using values",
    link="https://github.com/pytorch/pytorch/issues/27551",
    tries=lambda batch: torch.randn(batch, 3),
    sizes=(2, 5, 1),
    case=_stages,
    unchanged="fixed sizes",
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


def _sliced(x: Tensor) -> Tensor:
    """diffusers' autoencoders compute one image after the other to save memory."""
    done = [(part - part.mean((1, 2), keepdim=True)).relu() for part in x.split(1)]
    return torch.cat(done)


@op(
    "split",
    name="pieces-at-once",
    why="Split size 1 exceeds the remaining size of the selected axis: for part in x.split(1) runs as often as in the "
    "example",
    reason="split|shape|static",
    link="https://huggingface.co/docs/diffusers/api/models/autoencoderkl",
    tries=lambda batch: torch.randn(batch, 3, 4),
    sizes=(2, 5, 1),
    case=_sliced,
    unchanged="fixed sizes",
)
def pieces_at_once(tensor: Tensor, split_size_or_sections: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Gives a `for` over pieces of a dynamic axis the whole of it as the only one.

    That is right where pieces are computed independently of each other and joined again. Where they are not, the
    comparison with eager refuses the file, as it does the one with the example's number of pieces.
    """
    if not isinstance(split_size_or_sections, int) or not iterated(calling_frame(1)):
        return NotImplemented
    return (tensor,) if symbolic(tensor.shape[dim]) else NotImplemented


def _halves(x: Tensor) -> tuple[Tensor, ...]:
    """Two halves of a sequence, the second one shorter where the length is odd, three parts, and one."""
    first, second = torch.cat(x.chunk(1)).unsafe_chunk(2, 1)
    return first.sum(1) * second.sum(1), *(part.amax(0) for part in torch.chunk(x, 3, dim=1))


@op(
    "chunk",
    "unsafe_chunk",
    name="chunks-of-a-dynamic-axis",
    why="Error during constant folding for node (::SplitToSequence): 'NoneType' object has no attribute 'ndim'",
    reason="NoneType|SplitToSequence",
    link="https://github.com/microsoft/onnxscript/issues/2543",
    exporters=("dynamo",),
    tries=lambda batch, length: torch.randn(batch, length, 2),
    sizes=((2, 6), (3, 9), (1, 5), (2, 14)),
    case=_halves,
    unchanged="fixed sizes",
)
def chunk(input: Tensor, chunks: object, dim: int = 0) -> tuple[Tensor, ...]:
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


@op(
    "chunk",
    "unsafe_chunk",
    name="number-of-chunks",
    why="Rows are lost: x.chunk(n) with n from a size cuts as many parts as n says, and the graph has the example's",
    reason="shape",
    link="https://github.com/dreamquark-ai/tabnet/blob/develop/pytorch_tabnet/tab_network.py",
    exporters=("trace",),
    tries=lambda batch, length: torch.randn(batch, length, 2),
    sizes=((2, 6), (3, 9), (1, 5), (2, 17)),
    case=lambda x: torch.cat([part.exp() for part in x.chunk((x.shape[1] + 7) // 8, 1)], 1),
    unchanged=lambda x: torch.cat(x.chunk(2, 2), 1),
)
def number_of_chunks(
    original: Callable[..., tuple[Tensor, ...]], input: Tensor, chunks: object, dim: int = 0
) -> tuple[Tensor, ...]:
    """As many parts as in the example, which together have every row."""
    return original(input, example_of(chunks), dim) if isinstance(chunks, Tensor) else NotImplemented


def _uneven_parts(x: Tensor) -> tuple[Tensor, ...]:
    """Three parts, of which the first are one longer where the length is no multiple of three."""
    return tuple(part.amax(1) for part in torch.tensor_split(x, 3, dim=1))


@op(
    "tensor_split",
    name="parts-of-a-dynamic-axis",
    why="relative error: the first parts of torch.tensor_split(x, 3) are one longer, as in the example, at every size",
    reason="relative error",
    exporters=("dynamo",),
    tries=lambda batch, length: torch.randn(batch, length, 2),
    sizes=((2, 6), (3, 7), (1, 5), (2, 3)),
    case=_uneven_parts,
    unchanged="fixed sizes",
)
def tensor_split(input: Tensor, indices_or_sections: object, dim: int = 0) -> tuple[Tensor, ...]:
    """As many slices as there are sections; the first `length % sections` of them are one longer."""
    length, count = input.shape[dim], indices_or_sections
    if not isinstance(count, int) or count < 1 or not symbolic(length):
        return NotImplemented
    return _parts(input, [length // count * at + torch.sym_min(length % count, at) for at in range(1, count)], dim)


# ------------------------------------------------------------------ split and join
def _parts(x: Tensor, at: Any, axis: int) -> tuple[Tensor, ...]:
    ends = at if isinstance(at, list | tuple) else [x.shape[axis] // at * part for part in range(1, at)]
    return tuple(_part(x, start, end, axis) for start, end in zip([0, *ends], [*ends, None], strict=True))


op("vsplit", why=untraced("aten::vsplit"), tries=lambda n: torch.randn(4, n), case=lambda x: torch.vsplit(x, 2),
   to=lambda x, at: _parts(x, at, 0))  # fmt: skip


op("dsplit", why=untraced("aten::dsplit"), tries=lambda n: torch.randn(n, 2, 6), case=lambda x: torch.dsplit(x, [1, 4]),
   to=lambda x, at: _parts(x, at, 2))  # fmt: skip


op("hsplit", why=untraced("aten::hsplit"), tries=lambda n: torch.randn(n, 6), case=lambda x: torch.hsplit(x, 3),
   to=lambda x, at: _parts(x, at, 0 if x.dim() == 1 else 1))  # fmt: skip


# What is joined, and along which axis.
_STACKS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "hstack": (lambda x: x if x.dim() else x.reshape(1), 1),
    "vstack": (lambda x: x if x.dim() > 1 else x.reshape(1, -1), 0),
    "column_stack": (lambda x: x if x.dim() > 1 else x.reshape(-1, 1), 1),
    "dstack": (lambda x: x if x.dim() > 2 else x.unsqueeze(2) if x.dim() > 1 else x.reshape(1, -1, 1), 2),
}


def _stacks(x: Tensor) -> tuple[Tensor, ...]:
    short = x.bfloat16()
    found = torch.column_stack((x, x[:, 0])), torch.dstack((x, x + 1)), torch.dstack((x[0], x[0] * 2))
    return *found, torch.vstack((short, short[0])).float(), torch.hstack((short, short)).float()


@op(
    *_STACKS,
    name="stacks-along-an-axis",
    why="the operator 'aten::column_stack' is not supported; Type 'tensor(bfloat16)' of SequenceConstruct is invalid",
    reason="column_stack|SequenceConstruct",
    tries=numbers,
    case=_stacks,
)
def as_one_concat(original: Callable[..., Tensor], tensors: Any) -> Tensor:
    """Joined, and not as a sequence, which takes no bfloat16."""
    with_axes, axis = _STACKS[original.__name__]
    found = [with_axes(x) for x in tensors]
    return torch.cat(found, min(axis, found[0].dim() - 1))


@op(
    "torch._chunk_cat",
    "ops.aten._chunk_cat",
    name="chunk-cat",
    why=untraced("aten::_chunk_cat"),
    tries=matrices,
    case=lambda x: (_ATEN._chunk_cat([x, x * 2], 1, 2), _ATEN._chunk_cat([x, x[0]], 0, 3)),
)
def chunk_cat(tensors: Any, dim: int, num_chunks: int) -> Tensor:
    """Each tensor in so many chunks along an axis, padded with zeros; row by row flattened, and joined."""
    rows = []
    for x in tensors:
        axis = dim % x.dim()
        size = x.shape[axis]
        each = torch.div(size + num_chunks - 1, num_chunks, rounding_mode="floor")
        shape = [*x.shape[:axis], each * num_chunks - size, *x.shape[axis + 1 :]]
        whole = torch.cat((x, x.new_zeros(shape)), axis)
        rows.append(whole.reshape([*x.shape[:axis], num_chunks, -1]))
    return torch.cat(rows, -1)


op(
    "unsafe_chunk",
    why=untraced("aten::unsafe_chunk"),
    reason="unsafe_chunk",
    tries=lambda n: torch.randn(n, 6),
    sizes=(6, 9, 4),
    case=lambda x: torch.unsafe_chunk(x, 2, 0),
    to=lambda x, chunks, dim=0: x.chunk(chunks, dim),
)
