"""Mixtures of experts of transformers' models, without a loop over the experts that the tokens of a batch choose.

JetMoE's sort the tokens by expert, and split them by the number of tokens that chose each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.patching.proof import randomised

WRITTEN_FOR = "transformers 5.23.0"
WHY = "for expert_idx in expert_hit: only the experts that the example's tokens chose are in the graph"
LINK = "https://github.com/huggingface/transformers/pull/42697"
FAILURE = "Cannot split using values|relative error|data-dependent"
_MODELS = "transformers.models"
_row = functools.partial(patch, why=WHY, link=LINK)


def _switch() -> torch.nn.Module:
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers import modeling_switch_transformers as switch

    config = SwitchTransformersConfig(d_model=8, d_ff=12, num_experts=4)
    return randomised(switch.SwitchTransformersSparseMLP(config))


def _nllb() -> torch.nn.Module:
    from transformers import NllbMoeConfig
    from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeExperts

    return randomised(NllbMoeExperts(NllbMoeConfig(d_model=8, num_experts=4), 12))


def _dbrx() -> torch.nn.Module:
    from transformers.models.dbrx.configuration_dbrx import DbrxFFNConfig
    from transformers.models.dbrx.modeling_dbrx import DbrxExperts

    config = DbrxFFNConfig(hidden_size=8, ffn_hidden_size=12, moe_num_experts=4, moe_top_k=2)
    return randomised(DbrxExperts(config))


def _longcat() -> torch.nn.Module:
    from transformers import LongcatFlashConfig
    from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashExperts

    config = LongcatFlashConfig(hidden_size=8, expert_ffn_hidden_size=12, n_routed_experts=3, zero_expert_num=1)
    return randomised(LongcatFlashExperts(config))


def _tokens() -> list[tuple[Tensor, ...]]:
    """Tokens, the two experts that each chose, and their weights; in the example some expert is chosen by none."""
    chosen = [torch.rand(count, 4).topk(2).indices for count in (3, 18, 1)]
    chosen[0] = torch.tensor([[0, 2], [2, 0], [0, 2]])
    return [(torch.randn(len(picks), 8), picks, torch.rand(len(picks), 2)) for picks in chosen]


def _sequences() -> list[tuple[Tensor, ...]]:
    """The same, each token a text of its own."""
    return [(tokens[:, None], picks, weights) for tokens, picks, weights in _tokens()]


def _proof(
    build: Callable[[], torch.nn.Module],
    inputs: Callable[[], list[tuple[Tensor, ...]]] = _tokens,
    beside: tuple[str, ...] = (),
) -> Proof:
    return Proof(build, inputs, fails=("dynamo", "trace"), reason=FAILURE, beside=beside)


def _each(
    hidden: Tensor, chosen: Sequence[Tensor], weights: Tensor, experts: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """(tokens, hidden): what each expert makes of the tokens that chose it, weighted and summed.

    chosen: for each expert a bool mask (tokens, choices). weights: (tokens, choices).
    """
    # Every expert is in the graph, and gets the tokens that chose it, which may be none.
    results = torch.zeros_like(hidden)
    for mask, expert in zip(chosen, experts, strict=True):
        # A token chooses an expert once, so that no row is written twice.
        tokens = torch.nonzero(mask.any(1)).squeeze(1)
        share = (weights * mask).sum(1).index_select(0, tokens)
        made = expert(hidden.index_select(0, tokens)) * share[:, None]
        results = results.index_put((tokens,), results.index_select(0, tokens) + made.to(results.dtype))
    return results


@_row(
    f"{_MODELS}.switch_transformers.modeling_switch_transformers.SwitchTransformersExperts",
    name="switch-experts",
    when=When(requires=("transformers>=5",), bodies={"forward": {KnownBody("6f547878e681", WRITTEN_FOR)}}),
    proof=_proof(
        _switch,
        lambda: [(torch.randn(b, n, 8),) for b, n in ((2, 2), (3, 9), (1, 1))],
        # Switch's router casts its classifier in every forward.
        beside=("idle-cast",),
    ),
)
class _SwitchTransformersExperts:
    """Experts in a ModuleDict, a mask of the choices (tokens, 1, experts)."""

    def forward(self: Any, hidden_states: Tensor, selected_experts: Tensor, routing_weights: Tensor) -> Tensor:
        """hidden_states: (tokens, hidden). routing_weights: (tokens, 1)."""
        chosen = [selected_experts[:, :, number] > 0 for number in range(self.num_experts)]
        return _each(hidden_states, chosen, routing_weights, [self[f"expert_{n}"] for n in range(self.num_experts)])


@_row(
    f"{_MODELS}.nllb_moe.modeling_nllb_moe.NllbMoeExperts",
    name="nllb-experts",
    when=When(bodies={"forward": {KnownBody("830152032d0f", WRITTEN_FOR)}}),
    proof=_proof(_nllb),
)
class _NllbMoeExperts:
    """Experts in a ModuleDict, the choices as numbers."""

    def forward(self: Any, hidden_states: Tensor, router_mask: Tensor, router_probs: Tensor) -> Tensor:
        """hidden_states: (tokens, hidden). router_mask: (tokens, choices). router_probs: (tokens, choices)."""
        chosen = [router_mask == number for number in range(self.num_experts)]
        # In eval eager scales by what dropout keeps on average.
        kept = router_probs if self.training else router_probs * (1 - self.moe_token_dropout)
        return _each(hidden_states, chosen, kept, [self[f"expert_{n}"] for n in range(self.num_experts)])


@_row(
    f"{_MODELS}.dbrx.modeling_dbrx.DbrxExperts",
    name="dbrx-experts",
    when=When(bodies={"forward": {KnownBody("8f9eb88f2427", WRITTEN_FOR)}}),
    proof=_proof(_dbrx, _sequences),
)
class _DbrxExperts:
    """Experts whose weights are parts of one tensor."""

    def forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """hidden_states: (batch, length, hidden). top_k_index, top_k_weights: (batch * length, choices)."""
        parts = [self.ffn_hidden_size] * self.num_experts
        weights = zip(*(getattr(self.mlp, name).split(parts) for name in ("w1", "v1", "w2")), strict=True)
        experts = [lambda x, own=own: self.mlp(x, *own) for own in weights]
        chosen = [top_k_index == number for number in range(self.num_experts)]
        tokens = hidden_states.reshape(-1, self.hidden_size)
        return _each(tokens, chosen, top_k_weights, experts).reshape(hidden_states.shape)


@_row(
    f"{_MODELS}.longcat_flash.modeling_longcat_flash.LongcatFlashExperts",
    name="longcat-experts",
    when=When(bodies={"forward": {KnownBody("453eaea1d033", WRITTEN_FOR)}}),
    proof=_proof(_longcat),
)
class _LongcatFlashExperts:
    """Experts, the last of which return a token unchanged."""

    def forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """hidden_states: (tokens, hidden). top_k_index, top_k_weights: (tokens, choices)."""
        # Without routed experts there are no weights, and all are the identity.
        gated = 0 if self.gate_up_proj is None else self.num_routed_experts

        def expert(number: int, x: Tensor) -> Tensor:
            if number >= gated:
                return self.identity_expert(x)
            gate, up = functional.linear(x, self.gate_up_proj[number]).chunk(2, dim=-1)
            return functional.linear(self.act_fn(gate) * up, self.down_proj[number])

        numbers = range(self.total_experts)
        chosen = [top_k_index == number for number in numbers]
        return _each(hidden_states, chosen, top_k_weights, [functools.partial(expert, number) for number in numbers])


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
    return functional.linear(x, weight, bias)


SORTED_FAILURE = "onnxruntime fails|relative error|argument 'input'|must be tuple of ints, not Tensor"


def _jetmoe() -> torch.nn.Module:
    from transformers import JetMoeConfig
    from transformers.models.jetmoe.modeling_jetmoe import JetMoeMoE

    return randomised(JetMoeMoE(JetMoeConfig(hidden_size=8, intermediate_size=12, num_local_experts=4)))


def _sorted_proof(other: str) -> Proof:
    return Proof(
        build=_jetmoe,
        inputs=lambda: [(torch.randn(b, n, 8),) for b, n in ((2, 2), (3, 9), (1, 1))],
        fails=("trace",),
        exporters=("dynamo", "trace"),
        reason=SORTED_FAILURE,
        # JetMoE adds up what the experts made with index_add, which is wrong by itself under trace.
        beside=(other, "index-add"),
    )


@patch(
    f"{_MODELS}.jetmoe.modeling_jetmoe.JetMoeTopKGating",
    name="jetmoe-gating",
    why="expert_size.tolist(): as many tokens for each expert as in the example",
    link=LINK,
    when=When(bodies={"forward": {KnownBody("6fdf82e574f6", WRITTEN_FOR)}}),
    proof=_sorted_proof("jetmoe-experts"),
)
class _JetMoeTopKGating:
    """Tokens, sorted by the experts they chose."""

    def forward(self: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """hidden_states: (tokens, hidden). Returns what eager returns, but for the second last entry: not the number of
        tokens for each expert, but the expert of each sorted token."""
        logits = self.layer(hidden_states).float()
        best, experts = logits.topk(self.top_k, dim=1)
        gates = torch.softmax(best, dim=1).type_as(hidden_states).flatten()
        # Sizes for a split would be data. The expert of each token says the same, in a tensor.
        of_each, order = experts.flatten().sort(0)
        return order, order.div(self.top_k, rounding_mode="trunc"), gates[order], of_each, logits


@patch(
    f"{_MODELS}.jetmoe.modeling_jetmoe.JetMoeParallelExperts",
    name="jetmoe-experts",
    why="inputs.split(expert_size): as many tokens for each expert as in the example",
    link=LINK,
    when=When(bodies={"forward": {KnownBody("4a78bf31359d", WRITTEN_FOR)}}),
    proof=_sorted_proof("jetmoe-gating"),
)
class _JetMoeParallelExperts:
    """One product for each expert."""

    def forward(self: Any, inputs: Tensor, expert_size: Tensor) -> Tensor:
        """inputs: (tokens, features); expert_size: the expert of each token, from `_JetMoeTopKGating`."""
        results = torch.zeros([inputs.shape[0], self.output_size], dtype=inputs.dtype, device=inputs.device)
        for number in range(self.num_experts):
            rows = torch.nonzero(expert_size == number).squeeze(1)
            made = functional.linear(inputs.index_select(0, rows), self.weight[number])
            results = results.index_put((rows,), made)
        return results
