"""einops.layers.torch.EinMix as one Conv or one MatMul."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, When, patch
from onnxpatch.formulas.einops.mixing import plan_mixing


def _embedding() -> torch.nn.Module:
    from einops.layers.torch import EinMix

    return EinMix("b c (h p) (w q) -> b (h w) d", weight_shape="c p q d", bias_shape="d", c=3, p=8, q=8, d=64)


def _scaling() -> torch.nn.Module:
    """A weight along an axis that stays: a Mul."""
    from einops.layers.torch import EinMix

    return EinMix("b c h w -> b c h w", weight_shape="c", bias_shape="c", c=3)


@patch(
    "einops.layers.torch.EinMix",
    name="einops-einmix",
    why="EinMix is an Einsum over five or six axes, which takes up to three times as long as Conv and MatMul",
    link="https://einops.rocks/3-einmix-layer/",
    when=When(requires=("einops>=0.7",), exporters=("dynamo", "trace")),
    proof=Proof(
        _embedding,
        # The last image is large: times are compared at it.
        lambda: [(torch.randn(size),) for size in ((2, 3, 16, 24), (3, 3, 32, 8), (1, 3, 256, 256))],
        slower={"dynamo": 1.2, "trace": 1.2},
        unchanged=_scaling,
    ),
)
class EinMixStandIn:
    """A float32 input times a weight: Conv where the sizes allow it, else MatMul, else the layer's own einsum."""

    def forward(self: Any, input: Tensor) -> Tensor:
        plan = plan_mixing(self, input)
        if plan is None:
            return super().forward(input)  # type: ignore[misc]
        form = plan.convolution if plan.serves_convolution(input, self.axes_lengths) else plan.matmul
        return form(input, self.weight, self.bias, self.axes_lengths)
