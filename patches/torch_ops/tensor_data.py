"""`x.data`, through which a model writes into a tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch, running_model
from onnxpatch.formulas.proof_models import Computes


class _Data(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.clone()
        y.data[:, 0] = 5.0
        y.data.clamp_(min=0)
        return y * 2


@patch(
    "torch.Tensor.data",
    name="data-of-a-tensor",
    why="Constant lifted_tensor is mutated in the forward method; under trace the write is lost",
    link="https://github.com/pytorch/pytorch/issues/74801",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Data,
        lambda: [(torch.randn(b, n),) for b, n in ((4, 6), (7, 9), (1, 2))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="is mutated|size_bytes_is_heap_allocated|relative error",
        unchanged=lambda: Computes(lambda x: x.detach() * 2),
    ),
)
def data(original: Callable[..., Tensor], tensor: Tensor) -> Tensor:
    """The tensor itself. A parameter's and a buffer's data stay as they are: what is written there is stored."""
    running = running_model()
    stored = running is None or any(tensor is own for own in running.tensors.values())
    return NotImplemented if stored else tensor
