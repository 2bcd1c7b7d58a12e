"""repeat_interleave with one count for all elements."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.symbolic import symbolic


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
    return _repeated(input, repeats.reshape(()) if isinstance(repeats, Tensor) else repeats, dim)


class _Prompts(torch.nn.Module):
    """The text of each film, and a mask's sizes, once for each frame."""

    def forward(self, text: Tensor, film: Tensor) -> tuple[Tensor, Tensor]:
        frames = film.shape[1]
        return text.repeat_interleave(frames, dim=0, output_size=text.shape[0] * frames), text.repeat_interleave(
            frames, -1
        )


@patch(
    "torch.repeat_interleave",
    "torch.Tensor.repeat_interleave",
    name="repeat-by-a-size",
    why="invalid expand shape: where the count is a size, the exporter repeats the axis before the one asked for",
    link="https://github.com/microsoft/onnxscript/blob/main/onnxscript/function_libs/torch_lib/ops/core.py",
    exporters=("dynamo",),
    proof=Proof(
        _Prompts,
        lambda: [(torch.randn(n, 3, 4), torch.randn(n, frames)) for n, frames in ((2, 3), (5, 1), (3, 4))],
        ({0: "batch"}, {0: "batch", 1: "frames"}),
        fails=("dynamo",),
        reason="invalid expand shape|shape|broadcast",
        unchanged="fixed sizes",
    ),
)
def repeat_by_a_size(
    original: object, input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The same; a count that is a constant is left to the exporter."""
    if isinstance(repeats, Tensor) or not symbolic(repeats):
        return NotImplemented
    return _repeated(input, repeats, dim)


def _repeated(input: Tensor, repeats: Any, dim: int | None) -> Tensor:
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    times = [-1] * (source.dim() + 1)
    times[dim + 1] = repeats
    return source.unsqueeze(dim + 1).expand(times).flatten(dim, dim + 1)
