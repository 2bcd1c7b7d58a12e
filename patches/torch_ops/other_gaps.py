"""Arguments that the exporters take for others: classes to be counted, negative pads, axes to be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, missing, op
from onnxpatch.formulas.symbolic import counted

_ATEN = torch.ops.aten


@op(
    "one_hot",
    name="one-hot-of-all-classes",
    why="OneHot: Depth is negative; one_hot without a number of classes",
    reason="Depth|num_classes|one_hot|data-dependent|Could not guard|-1",
    tries=lambda n: torch.arange(n) % 7,
    case=lambda x: functional.one_hot(x),
)
def one_hot(input: Tensor, num_classes: Any = -1) -> Tensor:
    """As many classes as the largest number asks for."""
    if not isinstance(num_classes, int) or num_classes != -1:
        return NotImplemented
    count: Any = input.reshape(-1).amax(0) + 1
    if exporting() == "dynamo":
        count = count.item()
        # A number out of data may be a size only once it is known not to be negative.
        torch._check(count >= 0)
    return (input.unsqueeze(-1) == torch.arange(count, device=input.device)).to(torch.int64)


def _cut(x: Tensor) -> tuple[Tensor, ...]:
    return functional.pad(x, (-4, 5, 0, 0), "replicate"), functional.pad(x, (1, -2, -1, 1), "replicate")


@op(
    "nn.functional.pad",
    name="negative-pads",
    why="Pad: invalid mode with zero effective input extent: a negative pad of another kind than constant",
    reason="Pad|relative error|shape|effective",
    exporters=("trace",),
    case=_cut,
    tries=lambda b, h: torch.randn(b, 2, h + 4, 4),
    unchanged=lambda x: functional.pad(x, (1, 1, 0, 2), "replicate"),
)
def negative_pads(
    original: Callable[..., Tensor], input: Tensor, pad: Any, mode: str = "constant", value: Any = None
) -> Tensor:
    """What is cut off is cut off first."""
    amounts = list(pad)
    # Of "reflect" what is mirrored may be what is cut off.
    if mode != "replicate" or not all(isinstance(n, int) for n in amounts) or min(amounts) >= 0:
        return NotImplemented
    for at in range(0, len(amounts), 2):
        axis = input.dim() - 1 - at // 2
        size = input.shape[axis]
        # Eager reads the whole axis, also where all of it is cut off.
        places = torch.arange(size + amounts[at] + amounts[at + 1], device=input.device) - amounts[at]
        last = counted(size, input) - 1
        input = input.index_select(axis, torch.minimum(places.clamp(min=0), last))
    return input


@op(
    "torch.cross",
    "Tensor.cross",
    name="cross-of-the-first-three",
    why="relative error 2.1 at a size of 3: the axis of the example is taken, and eager takes the first of size 3",
    reason="relative error",
    exporters=("trace",),
    tries=lambda n: (torch.randn(n, 3), torch.randn(n, 3)),
    sizes=(5, 3, 1),
    case=lambda x, y: torch.cross(x, y),
    unchanged=lambda x, y: torch.linalg.cross(x, y),
)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product along the first axis of three elements, whichever that is."""
    if dim is not None or input.shape != other.shape:
        return NotImplemented
    found: Tensor | None = None
    for axis in reversed(range(input.dim())):
        size = counted(input.shape[axis], input)
        ticks = torch.arange(input.shape[axis], device=input.device)
        one, two = (torch.remainder(ticks + by, size) for by in (1, 2))
        product = input.index_select(axis, one) * other.index_select(axis, two)
        product = product - input.index_select(axis, two) * other.index_select(axis, one)
        found = product if found is None else torch.where(size == 3, product, found)
    return NotImplemented if found is None else found


@op(
    "linalg.vander",
    why=missing("aten::linalg_vander", exporters=("trace",)),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: (torch.linalg.vander(x), torch.linalg.vander(x, N=3)),
)
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers of each number, from 0."""
    powers = torch.arange(x.shape[-1] if N is None else N, device=x.device)
    found = torch.pow(x.unsqueeze(-1), powers.to(x.dtype))
    # Not 0 ** 0, of which runtimes think differently.
    return torch.where(powers == 0, torch.ones_like(found), found)


op(
    "ops.aten._upsample_bilinear2d_aa",
    "ops.aten._upsample_bilinear2d_aa.default",
    name="bilinear-antialiased",
    why=missing("aten::_upsample_bilinear2d_aa", exporters=("trace",)),
    beside=("interpolate",),
    tries=lambda b, h, w: torch.randn(b, 2, h + 4, w + 4),
    case=lambda x: _ATEN._upsample_bilinear2d_aa(x, (3, 4), False),
    to=lambda x, size, corners, *scales: functional.interpolate(
        x, size, mode="bilinear", align_corners=corners, antialias=True
    ),
)


# ------------------------------------------------------------------ NaN
def _holes(b: int, n: int) -> Tensor:
    return torch.where(torch.arange(n) % 4 == 3, torch.nan, torch.randn(b, n) * 2)


_NAN = "non-finite values differ: NaN comes out as 0"
op(
    "nn.functional.hardshrink",
    "hardshrink",
    why=_NAN,
    reason="non-finite",
    exporters=("trace",),
    tries=_holes,
    case=lambda x: functional.hardshrink(x, 0.7),
    to=lambda x, lambd=0.5: torch.where((x <= lambd) & (x >= -lambd), torch.zeros_like(x), x),
)
op(
    "nn.functional.softshrink",
    why=_NAN,
    reason="non-finite",
    exporters=("trace",),
    tries=_holes,
    case=lambda x: functional.softshrink(x, 0.7),
    to=lambda x, lambd=0.5: x - x.clamp(-lambd, lambd),
)


# ------------------------------------------------------------------ a layer with its loss
def _scored(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    loss, target = functional.linear_cross_entropy, torch.arange(x.shape[0]) % 4
    return loss(x, weight, target), loss(x[0], weight, target[0]), loss(x, weight, target, reduction="sum")


if hasattr(functional, "linear_cross_entropy"):  # torch 2.13 and later

    @op(
        "nn.functional.linear_cross_entropy",
        why="Reshape: Invalid position of 0: the cross entropy of a linear layer",
        reason="Reshape|linear_cross_entropy|shape",
        exporters=("trace",),
        case=_scored,
        tries=lambda b, n: (torch.randn(b, 6), torch.randn(4, 6)),
    )
    def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any) -> Tensor:
        """The layer, then the loss, not in chunks."""
        bias = options.pop("linear_bias", None)
        options.pop("options", None)  # how many rows at once
        known = {name: value for name, value in options.items() if value is not None}
        scores = functional.linear(input, linear_weight, bias)
        if target.dim() == 0:
            scores, target = scores.unsqueeze(0), target.unsqueeze(0)
            found = functional.cross_entropy(scores, target, **known)
            return found.reshape(())
        return functional.cross_entropy(scores, target, **known)
