"""`F.fold` to a dynamic output size, by a transposed convolution that adds overlapping patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


class _Overlap(torch.nn.Module):
    """Cuts out windows, weights them and folds them back; part of the edge is in no window."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        whole = x.shape[-2:]
        apart = F.fold(F.unfold(x, 2, stride=2).softmax(1), whole, 2, stride=2)
        over = F.fold(F.unfold(x, (3, 2), padding=1, stride=2), (whole[0], whole[1]), (3, 2), padding=1, stride=2)
        return apart, over, F.fold(F.unfold(x, 2, dilation=2), output_size=whole, kernel_size=2, dilation=2)


@patch(
    "torch.nn.functional.fold",
    name="fold-dynamic-size",
    why="TypeError: 'NoneType' object is not subscriptable (Occurred when translating col2im); the size of the example "
    "stays in the graph",
    link="https://github.com/pytorch/pytorch/issues/107588",
    exporters=("trace",),
    proof=Proof(
        build=_Overlap,
        inputs=lambda: [(torch.randn(b, 3, *size),) for b, size in ((2, (8, 9)), (1, (13, 6)), (3, (5, 5)))],
        dynamic_shapes=({0: "b", 2: "h", 3: "w"},),
        fails=("trace",),
        reason="col2im",
        # The stand-in calls unflatten, whose traced shape the exporter makes static without that patch.
        beside=("composites",),
    ),
)
def fold(
    original: Callable[..., Tensor],
    input: Tensor,
    output_size: object,
    kernel_size: object,
    dilation: object = 1,
    padding: object = 0,
    stride: object = 1,
) -> Tensor:
    """(N, C * kh * kw, L) to (N, C, H, W). A transposed convolution adds each column as a patch."""
    sizes, kernel, dilation, padding, stride = (_pair(v) for v in (output_size, kernel_size, dilation, padding, stride))
    if input.dim() != 3 or not any(symbolic(size) for size in sizes):
        return NotImplemented
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    counts = [(n + 2 * p - span) // s + 1 for n, p, span, s in zip(sizes, padding, spans, stride, strict=True)]
    entries = kernel[0] * kernel[1]
    columns = input.reshape([input.shape[0], input.shape[1], counts[0], counts[1]])
    maps = columns.unflatten(1, (-1, entries)).flatten(0, 1)  # each channel is folded separately
    # Each entry of a column lays its value at its own place of the patch.
    weight = torch.eye(entries, dtype=input.dtype, device=input.device).reshape(entries, 1, *kernel)
    laid = F.conv_transpose2d(maps, weight, stride=tuple(stride), dilation=tuple(dilation))
    for axis, (size, span, step, margin) in enumerate(zip(sizes, spans, stride, padding, strict=True), start=2):
        # Rows behind the last window are in none, and are zeros in the result.
        laid = F.pad(laid, [0, step - 1 + span] if axis == 3 else [0, 0, 0, step - 1 + span])
        laid = laid.narrow(axis, margin, size)
    return laid.unflatten(0, (input.shape[0], -1)).squeeze(2)


def _pair(value: object) -> list[Any]:
    return list(value) if isinstance(value, tuple | list | torch.Size) else [value, value]
