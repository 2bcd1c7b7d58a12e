"""atan2, whose quotient is 0/0 in the origin."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


def _grid(batch: int, count: int) -> tuple[Tensor, Tensor]:
    """Every pair of a few numbers, 0 and a negative 0 among them."""
    numbers = torch.tensor([0.0, 1.0, -1.0, -0.0, 2.5, -0.3])[:count]
    return tuple(one.expand(batch, -1, -1).clone() for one in torch.meshgrid(numbers, numbers, indexing="ij"))  # type: ignore[return-value]


@patch(
    "torch.atan2",
    "torch.arctan2",
    "torch.Tensor.atan2",
    "torch.Tensor.arctan2",
    name="atan2-origin",
    why="non-finite values differ: atan2(0, 0) is NaN in the graph, and atan2(0, -1) has the wrong sign",
    link="https://github.com/pytorch/pytorch/issues/51334",
    exporters=("dynamo", "trace"),
    proof=Proof(
        lambda: Computes(lambda y, x: torch.atan2(y, x)),
        lambda: [_grid(2, 6), _grid(1, 3), _grid(3, 5)],
        ({0: "batch", 1: "n", 2: "m"},) * 2,
        fails=("dynamo", "trace"),
        reason="non-finite values differ|relative error",
        unchanged=lambda: Computes(lambda y, x: torch.atan(y) + x),
    ),
)
def atan2(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """The angle of (other, input), in radians from -pi to pi."""
    if not input.is_floating_point() or not other.is_floating_point():
        return NotImplemented
    # The only place where the quotient says nothing: 0 / 0 is NaN.
    origin = (input == 0) & (other == 0)
    # A quotient by 0 has the sign of the number divided, by a negative 0, too; in the origin it is 0.
    angle = torch.atan(input / torch.where(other == 0, (input == 0).to(other.dtype), other))
    below = (input < 0) | (torch.reciprocal(input) < 0)  # so is a negative zero
    turned = torch.where(below, angle - math.pi, angle + math.pi)
    left = (other < 0) | (origin & (torch.reciprocal(other) < 0))
    # Left of the y axis the arctangent of the quotient is off by half a turn.
    return torch.where(left, turned, angle)
