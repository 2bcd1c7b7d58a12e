"""RMS normalization of Llama and a hundred models after it, in the form that onnxruntime has a kernel for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.layer_nodes import rms_norm

WRITTEN_FOR = "transformers 5.23.0"


def _norm() -> nn.Module:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    norm = LlamaRMSNorm(6)
    nn.init.normal_(norm.weight)
    return norm


@patch(
    "transformers.models.llama.modeling_llama.LlamaRMSNorm",
    name="transformers-rms-norm",
    why="Pow, ReduceMean, Sqrt, Reciprocal and two Mul for each normalization: onnxruntime fuses nothing of it, "
    "since it looks for a division",
    when=When(
        # Of Llama, of Olmo, which multiplies by the weight before it returns to half precision, and of T5.
        bodies={
            "forward": {
                KnownBody("9635bcd843f3", WRITTEN_FOR),
                KnownBody("eef4e978a32a", WRITTEN_FOR),
                KnownBody("3152525beceb", WRITTEN_FOR),
            }
        },
    ),
    proof=Proof(
        build=_norm,
        inputs=lambda: [(torch.randn(2, 5, 6),), (torch.randn(3, 8, 6),)],
        leaner=("dynamo", "trace"),
    ),
)
class _RMSNorm:
    """Computes x / sqrt(mean(x^2) + eps), times the weight. Half precision is left as it is, since the models round in
    different orders there."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Any:
        if hidden_states.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return NotImplemented
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)
