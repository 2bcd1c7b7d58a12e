"""A mixture of experts by expert: every declared variant as eager has it, whoever chose whom; weights stored once."""

from __future__ import annotations

import pytest
import torch

from onnxpatch.patches.transformers.experts import by_expert
from tests.exporting import export, run, wrong
from tests.formulas.forms import EXPORTERS

pytestmark = pytest.mark.exports

COUNT, HIDDEN, INNER = 4, 32, 48


class Experts(torch.nn.Module):
    """As transformers declares one: with or without gate, biases, and transposed weights."""

    def __init__(self, gate: bool, bias: bool, transposed: bool) -> None:
        super().__init__()
        self.num_experts, self.has_gate, self.has_bias, self.is_transposed = COUNT, gate, bias, transposed
        self.act_fn = torch.nn.SiLU()
        first = 2 * INNER if gate else INNER
        shape = lambda out, into: (COUNT, into, out) if transposed else (COUNT, out, into)  # noqa: E731
        name = "gate_up_proj" if gate else "up_proj"
        self.register_parameter(name, torch.nn.Parameter(torch.randn(shape(first, HIDDEN)) / 6))
        self.down_proj = torch.nn.Parameter(torch.randn(shape(HIDDEN, INNER)) / 6)
        if bias:
            self.register_parameter(f"{name}_bias", torch.nn.Parameter(torch.randn(COUNT, first)))
            self.down_proj_bias = torch.nn.Parameter(torch.randn(COUNT, HIDDEN))

    def _apply_gate(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return self.act_fn(gate) * up

    def forward(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return by_expert(self, x, index, weights)


def expected(experts: Experts, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """By transformers' own function, which gathers each token's weights."""
    from transformers.integrations.moe import batched_mm_experts_forward

    experts._is_expert_parallel, experts.has_post_expert_norm = False, False
    return batched_mm_experts_forward(experts, x, index, weights)


def routed(tokens: int, among: int) -> tuple[torch.Tensor, ...]:
    index = torch.stack([torch.randperm(among)[:2] for _ in range(tokens)])
    return torch.randn(tokens, HIDDEN), index, torch.rand(tokens, 2)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("gate", "bias", "transposed"), [(True, False, False), (True, True, True), (False, True, False)]
)
def test_as_transformers_has_it(exporter, gate, bias, transposed):
    experts = Experts(gate, bias, transposed).eval().requires_grad_(False)
    inputs = [routed(*sizes) for sizes in ((6, COUNT), (1, COUNT), (40, 3), (5, 2))]  # with experts that nobody chose
    file = export(experts, inputs[0], exporter, ({0: "n"}, {0: "n"}, {0: "n"}))
    for args in inputs:
        assert wrong(run(file, args), expected(experts, *args), 1e-5) is None
    weights = sum(parameter.numel() for parameter in experts.parameters())
    assert len(file) < 4 * weights + 80_000
