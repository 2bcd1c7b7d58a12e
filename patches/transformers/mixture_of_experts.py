"""Mixtures of experts in transformers: each expert is applied to the tokens that chose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import op
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


def by_expert(experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The output of the forward of transformers' experts: (tokens, hidden).

    experts: a module that transformers' `use_experts_implementation` decorated. top_k_index, top_k_weights:
    (tokens, choices). A choice outside this module's experts (another process has it) adds nothing.
    """
    choices = top_k_index.shape[-1]
    slots = top_k_index.reshape(-1)
    results = hidden_states.new_zeros([slots.shape[0], hidden_states.shape[-1]])
    for number in range(experts.num_experts):
        # A loop over experts, not a gather of their weights: that would copy a matrix for every token.
        chosen = torch.nonzero(slots == number).squeeze(1)
        tokens = hidden_states.index_select(0, torch.div(chosen, choices, rounding_mode="trunc"))
        # Every slot has one expert, so no row is written twice and nothing has to be accumulated.
        results = results.index_put((chosen,), _expert(experts, number, tokens).to(results.dtype))
    weighted = results.reshape([-1, choices, hidden_states.shape[-1]]) * top_k_weights.unsqueeze(-1)
    return weighted.sum(1).to(hidden_states.dtype)


def _expert(experts: Any, number: int, x: Tensor) -> Tensor:
    first = "gate_up_proj" if experts.has_gate else "up_proj"
    x = _linear(experts, first, number, x)
    x = experts._apply_gate(x) if experts.has_gate else experts.act_fn(x)
    x = _linear(experts, "down_proj", number, x)
    return experts.post_expert_norm(x) if getattr(experts, "has_post_expert_norm", False) else x


def _linear(experts: Any, name: str, number: int, x: Tensor) -> Tensor:
    weight = getattr(experts, name)[number]
    bias = getattr(experts, f"{name}_bias")[number] if experts.has_bias else None
    if experts.is_transposed:
        x = torch.matmul(x, weight)
        return x if bias is None else x + bias
    return F.linear(x, weight, bias)
