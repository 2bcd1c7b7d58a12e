"""pad_sequence: sequences of several lengths as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op


def _padded(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True, padding_value=-1.0)


@op(
    "nn.utils.rnn.pad_sequence",
    why="Exporting the operator 'aten::pad_sequence' to ONNX opset version 18 is not supported",
    reason="aten::pad_sequence",
    link="https://github.com/pytorch/pytorch/issues/98549",
    exporters=("trace",),
    # The longer one is once the first, once the second.
    tries=lambda b, n: (torch.randn(b, 3), torch.randn(n, 3)),
    sizes=((5, 2), (4, 9)),
    case=_padded,
)
def padded(
    original: Callable[..., Tensor],
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Gathers each sequence by a clamped index, and puts the padding beyond its end."""
    lengths = [torch.ones_like(torch.arange(each.shape[0])).sum() for each in sequences]
    longest: Any = torch.stack(lengths).amax()
    ticks = torch.arange(longest, device=sequences[0].device)
    rows = []
    for each, length in zip(sequences, lengths, strict=True):
        # Padded on the left, a sequence starts where as many places are left as it has entries.
        place = ticks if padding_side == "right" else ticks - (ticks.shape[0] - length)
        there = (place >= 0) & (place < length)
        # The index is clamped, since Gather refuses one outside; what it reads there is replaced by the padding.
        row = each.index_select(0, place.clamp(min=0).minimum(length - 1))
        there = there.view([-1] + [1] * (each.dim() - 1))
        rows.append(torch.where(there, row, torch.full_like(row, padding_value)))
    return torch.stack(rows, 0 if batch_first else 1)
