"""Matrix exponentials and products of reflections of weights, as `parametrizations.orthogonal` makes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch, running_model
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.tracing import constant, traced_from, unrecorded


class _Orthogonal(torch.nn.Module):
    """A square weight, which is a matrix exponential, and a tall one, which is a product of reflections."""

    def __init__(self) -> None:
        super().__init__()
        orthogonal = torch.nn.utils.parametrizations.orthogonal
        self.square, self.tall = orthogonal(torch.nn.Linear(6, 6)), orthogonal(torch.nn.Linear(6, 9))
        for name, stored in self.named_parameters():
            torch.nn.init.normal_(stored) if "square" in name else None

    def forward(self, x: Tensor) -> Tensor:
        return self.tall(torch.tanh(self.square(x)))


@patch(
    "torch.matrix_exp",
    "torch.linalg.matrix_exp",
    "torch.linalg.householder_product",
    name="orthogonal-weights",
    why="Exporting the operator 'aten::linalg_matrix_exp', 'aten::linalg_householder_product' to ONNX is not "
    "supported; No decompositions registered for aten.linalg_matrix_exp",
    link="https://github.com/pytorch/pytorch/issues/107948",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Orthogonal,
        lambda: [(torch.randn(batch, 6),) for batch in (3, 5, 1)],
        ({0: "batch"},),
        fails=("dynamo", "trace"),
        reason="matrix_exp|householder_product|aten::mH",
        unchanged=lambda: Computes(lambda x: torch.exp(x)),
    ),
)
def stored_weight(original: Callable[..., Tensor], input: Tensor, tau: Tensor | None = None) -> Tensor:
    """The result as a constant, if it depends on weights only."""
    tensors = [input] if tau is None else [input, tau]
    running = running_model()
    if running is None or running.model is None:
        return NotImplemented
    if exporting() == "trace":
        stored = [*running.model.parameters(), *running.model.buffers()]
        if not all(traced_from(tensor, stored) for tensor in tensors):
            return NotImplemented
    known = [constant(tensor, running.model, running.tensors) for tensor in tensors]
    if any(tensor is None for tensor in known):
        return NotImplemented
    made: Tensor = unrecorded(lambda: original(*known))
    return made
