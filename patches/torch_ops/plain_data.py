"""`x.data`: it takes a tensor out of the recording of torch.jit.trace, and torch.export refuses writes through it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch, running_model
from onnxpatch.formulas.proof_models import Computes


class _Pairs(torch.nn.Module):
    """Sizes read off `x.data`, and values; and what is written through it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = x.data.shape
        written = x.clone()
        written.data[:, 0] = 5.0
        written.data.clamp_(min=0)
        return x.view(batch, length // 2, 2).softmax(1) * x.data.mean(1)[:, None, None], written * 2


@patch(
    "torch.Tensor.data",
    name="plain-data",
    why="x.data.shape has the sizes of the example, and x.data its values: constants of the graph; what is written "
    "through it is lost. Under dynamo: Constant lifted_tensor is mutated in the forward method",
    link="https://github.com/pytorch/pytorch/issues/22097",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Pairs,
        lambda: [(torch.randn(b, n),) for b, n in ((2, 6), (3, 8), (1, 2))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="reshaped|broadcast|relative error|is mutated|size_bytes_is_heap_allocated",
        unchanged=lambda: Computes(lambda x: x.detach() * 2),
    ),
)
def plain_data(original: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """The tensor itself, recorded. Those of weights and buffers are constants anyway, and what is written is stored."""
    running = running_model()
    stored = running is None or any(tensor is own for own in running.tensors.values())
    return NotImplemented if stored or (tensor.requires_grad and tensor.is_leaf) else tensor
