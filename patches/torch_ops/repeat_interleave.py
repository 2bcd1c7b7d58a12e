"""repeat_interleave with one count for all elements."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Angles(torch.nn.Module):
    """Rotary angles, each for two channels, then a reshape with an inferred size."""

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(2, -1).reshape(x.shape[0], 2, -1)


@patch(
    "torch.repeat_interleave",
    "torch.Tensor.repeat_interleave",
    name="repeat-interleave",
    why="Unsupported: ONNX export of operator repeat_interleave along dimension with unknown input size; "
    "with a negative dim, other constants of that value change too: a reshape to -1 becomes one to 1",
    link="https://github.com/pytorch/pytorch/issues/128505",
    exporters=("trace",),
    proof=Proof(
        _Angles,
        lambda: [(torch.randn(batch, 6, 4),) for batch in (2, 5, 1)],
        ({0: "batch"},),
        fails=("trace",),
        reason="shape",
    ),
)
def repeat_interleave(
    original: object, input: Tensor, repeats: object = None, dim: int | None = None, output_size: object = None
) -> Tensor:
    """Repeats by expand and reshape: (…, n, …) -> (…, n, 1, …) -> (…, n * repeats, …)."""
    if repeats is None or (isinstance(repeats, Tensor) and repeats.dim() > 0 and repeats.shape[0] != 1):
        return NotImplemented  # one count for each element
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    times: list[Any] = [-1] * (source.dim() + 1)
    times[dim + 1] = repeats.reshape(()) if isinstance(repeats, Tensor) else repeats
    return source.unsqueeze(dim + 1).expand(times).flatten(dim, dim + 1)
