"""repeat_interleave with a count for each element, in time and memory proportional to the result."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.repeats import repeated, sources


class _Spread(torch.nn.Module):
    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return x.repeat_interleave(counts, 0)


@patch(
    "torch.repeat_interleave",
    "torch.Tensor.repeat_interleave",
    name="repeat-by-counts",
    why="the exported graph compares every place with every count: 10,000 elements take 1.5 GB",
    link="https://github.com/pytorch/pytorch/issues/128505",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Spread,
        # Counts of 0 are among them.
        lambda: [(torch.randn(batch, 3), torch.arange(batch) % 3) for batch in (4, 5, 2)],
        ({0: "batch"}, {0: "batch"}),
        leaner=("dynamo", "trace"),
    ),
)
def repeat_by_counts(
    original: object, input: Tensor, repeats: object = None, dim: int | None = None, *, output_size: object = None
) -> Tensor:
    """The indices are the running sum of a 1 at the end of each element; see `formulas.repeats`."""
    if repeats is None:  # repeat_interleave(counts), which returns indices
        return sources(input, output_size)
    if not isinstance(repeats, Tensor) or repeats.dim() == 0 or repeats.shape[0] == 1:
        return NotImplemented
    source, dim = (input.flatten(), 0) if dim is None else (input, dim % input.dim())
    return repeated(source, repeats, dim, output_size)
