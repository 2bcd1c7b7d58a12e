"""Frequencies such as `exp(-log(10000) * arange(n) / n)`, as the constants that torch computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch, running_model
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.formulas.tracing import constant, unrecorded

_MOST = 1 << 16  # elements that are written into the file


class _Times(torch.nn.Module):
    """Sines of a time step, whose angles are so large that the last bit of a frequency matters."""

    def forward(self, time: Tensor) -> Tensor:
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(64, dtype=torch.float32) / 64)
        return torch.sin(time[:, None].float() * frequencies * 20000.0)


@patch(
    "torch.exp",
    "torch.Tensor.exp",
    name="constant-exponentials",
    why="relative error 4e-3: the frequencies of a time step are computed in the graph, whose exp rounds otherwise",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/embeddings.py",
    exporters=("dynamo",),
    proof=Proof(
        _Times,
        lambda: [(torch.randint(500, 1000, (batch,)),) for batch in (3, 5, 1)],
        ({0: "batch"},),
        fails=("dynamo",),
        reason="relative error",
        unchanged=lambda: Computes(lambda x: torch.exp(x) + torch.exp(x.new_ones(3)).sum()),
    ),
)
def constant_exponential(original: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """The result as a constant, if it depends on no input and on no weight."""
    # A length that changes makes no constant.
    if any(map(symbolic, tensor.shape)) or not 0 < tensor.numel() <= _MOST:
        return NotImplemented
    running = running_model()
    if running is None or running.model is None:
        return NotImplemented
    known = constant(tensor, running.model, {})
    if known is None:
        return NotImplemented
    made: Tensor = unrecorded(lambda: original(known))
    return made
