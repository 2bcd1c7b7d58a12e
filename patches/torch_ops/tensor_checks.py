"""Assertions on tensors, which ONNX does not have. They are left out of the graph and stay in eager."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Checked(torch.nn.Module):
    """Checks that lengths add up to the number of rows."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        torch._check_tensor_all_with(ValueError, lengths.sum() == x.shape[0])
        return x.cumsum(0) / lengths.max()


def _parts() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(n, 3), torch.tensor([n - 2, 2])) for n in (5, 3, 8)]


@patch(
    "torch._check_tensor_all_with",
    name="tensor-checks",
    why="No ONNX function found for <OpOverload(op='aten._is_all_true', overload='default')>",
    link="https://github.com/huggingface/transformers/issues/44265",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Checked,
        _parts,
        ({0: "n"}, None),
        fails=("dynamo",),
        reason="aten._is_all_true",
    ),
)
def tensor_checks(original: object, error_type: object, cond: Tensor, message: object = None) -> None:
    """Does nothing: an ONNX graph has no assertions. torch.onnx drops those that it knows, too."""
