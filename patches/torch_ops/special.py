"""torch.lgamma, which has no ONNX operator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch

# Lanczos approximation with g = 7 and nine terms: 15 digits.
_G = 7.0
_TERMS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def lgamma(x: Tensor) -> Tensor:
    """log |gamma(x)|, computed in float64, since large terms cancel near its roots at 1 and 2."""
    wide = x.to(torch.float64)
    # The series holds to the right of 0.5; to the left the reflection below takes over.
    above = torch.where(wide < 0.5, 1 - wide, wide) - 1
    series = torch.full_like(above, _TERMS[0])
    for number, term in enumerate(_TERMS[1:], start=1):
        series = series + term / (above + number)
    t = above + _G + 0.5
    found = 0.5 * math.log(2 * math.pi) + (above + 0.5) * torch.log(t) - t + torch.log(series)
    # gamma(x) gamma(1 - x) = pi / sin(pi x). The sine is that of the distance to the nearest integer, which is exact.
    part = wide - torch.floor(wide)
    mirrored = math.log(math.pi) - torch.log(torch.sin(math.pi * part).abs()) - found
    found = torch.where(wide < 0.5, mirrored, found)
    # The poles at 0, -1, -2, ...
    found = torch.where((wide <= 0) & (part == 0), torch.full_like(wide, math.inf), found)
    return torch.where(wide.abs() == math.inf, torch.full_like(wide, math.inf), found).to(x.dtype)


class _Gamma(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.lgamma(x), torch.special.gammaln(x.abs() * 20 + 1e-3), x.lgamma()


@patch(
    "torch.lgamma",
    "torch.Tensor.lgamma",
    "torch.special.gammaln",
    name="lgamma",
    why="Exporting the operator 'aten::lgamma' to ONNX is not supported; No ONNX function found for aten.lgamma",
    link="https://github.com/pytorch/pytorch/issues/126972",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Gamma,
        # On both sides of the poles at 0, -1, ..., and through the roots at 1 and 2.
        inputs=lambda: [(torch.linspace(-4.7, 5.2, n)[:, None] + torch.rand(n, 2) * 0.1,) for n in (9, 40, 1)],
        dynamic_shapes=({0: "n"},),
        fails=("dynamo", "trace"),
        reason="lgamma",
    ),
)
def log_gamma(original: Callable[..., Tensor], input: Tensor) -> Tensor:
    """Computes lgamma by a series of nine terms, and below 0.5 by reflection."""
    return lgamma(input) if input.is_floating_point() else lgamma(input.to(torch.float32))
