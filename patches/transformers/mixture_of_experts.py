"""Mixtures of experts in transformers: each expert is applied to the tokens that chose it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch import op
from onnxpatch.formulas.experts import by_expert
from onnxpatch.formulas.proof_models import randomised


def _experts() -> torch.nn.Module:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=8, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "grouped_mm"
    return randomised(MixtralSparseMoeBlock(config))


@op(
    "transformers.integrations.moe.ExpertsInterface.get_interface",
    name="experts-by-expert",
    why="No ONNX function found for transformers.grouped_mm_fallback; under trace the operator aten::histc is refused",
    reason="grouped_mm_fallback|aten::histc",
    link="https://github.com/huggingface/transformers/pull/42697",
    requires=("transformers>=5",),
    tries=lambda b, n: torch.randn(b, n, 8),
    sizes=((2, 5), (1, 1), (3, 9)),
    case=_experts,
)
def experts_by_expert(
    original: object, interface: object, experts_implementation: str | None, default: Callable[..., object]
) -> object:
    """Returns the form with one product for each expert, whatever the configuration names: it copies no weights."""
    return by_expert
