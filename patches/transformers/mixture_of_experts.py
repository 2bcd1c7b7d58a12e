"""Mixtures of experts in transformers: each token through its chosen experts' weights, gathered in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch import Proof, patch
from onnxpatch.patching.proof import randomised


def _experts() -> torch.nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=8, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "grouped_mm"
    return randomised(MixtralSparseMoeBlock(config))


@patch(
    "transformers.integrations.moe.ExpertsInterface.get_interface",
    name="experts-by-gather",
    why="No ONNX function found for transformers.grouped_mm_fallback; under trace the operator aten::histc is refused",
    link="https://github.com/huggingface/transformers/pull/42697",
    requires=("transformers>=5",),
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_experts,
        inputs=lambda: [(torch.randn(2, length, 8),) for length in (5, 1, 9)],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
    ),
)
def experts_by_gather(
    original: Any, interface: Any, experts_implementation: str | None, default: Callable[..., Any]
) -> Any:
    """transformers' own form without sorting and grouping, whatever the configuration names.

    It gathers the weights of as many experts as there are tokens times choices: right at every size, and memory grows
    with the number of tokens.
    """
    return original(interface, "batched_mm", default)
