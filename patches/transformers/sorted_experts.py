"""JetMoE's experts: tokens sorted by expert, and split by the number of tokens that chose each of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_cases import randomised

WRITTEN_FOR = "transformers 5.23.0"
LINK = "https://github.com/huggingface/transformers/pull/42697"
FAILURE = "onnxruntime fails|relative error|argument 'input'|must be tuple of ints, not Tensor"
_MODELS = "transformers.models"


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
        reason=FAILURE,
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
class JetMoeTopKGating:
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
class JetMoeParallelExperts:
    """One product for each expert."""

    def forward(self: Any, inputs: Tensor, expert_size: Tensor) -> Tensor:
        """inputs: (tokens, features); expert_size: the expert of each token, from `JetMoeTopKGating`."""
        results = torch.zeros([inputs.shape[0], self.output_size], dtype=inputs.dtype, device=inputs.device)
        for number in range(self.num_experts):
            rows = torch.nonzero(expert_size == number).squeeze(1)
            made = functional.linear(inputs.index_select(0, rows), self.weight[number])
            results = results.index_put((rows,), made)
        return results
