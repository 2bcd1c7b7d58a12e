"""torch.isin by a binary search: the members are sorted once."""

from __future__ import annotations

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas.searching import contained


class _Known(torch.nn.Module):
    def forward(self, x: torch.Tensor, members: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.isin(x, members), torch.isin(x, torch.tensor([1, 7]), invert=True)


@patch(
    "torch.isin",
    name="membership",
    why="Exporting the operator 'aten::isin' to ONNX is not supported; No ONNX function found for aten.isin",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Known,
        inputs=lambda: [(torch.randint(9, (n, 3)), torch.randint(9, (m,))) for n, m in ((4, 3), (7, 5), (1, 1))],
        dynamic_shapes=({0: "n"}, {0: "m"}),
        fails=("dynamo", "trace"),
        reason="aten.searchsorted|aten.isin|aten::isin",
    ),
)
def isin(
    original: object, elements: object, test_elements: object, *, assume_unique: bool = False, invert: bool = False
) -> torch.Tensor:
    """Takes O((values + members) log(members)); torch.isin exported plainly takes their product."""
    return contained(elements, test_elements, invert=invert)
