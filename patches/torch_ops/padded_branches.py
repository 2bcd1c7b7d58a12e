"""Padding inside an `if`, by amounts that are only right where its test is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import op
from onnxpatch.decisions.if_rules.padding_if import amounts_here
from onnxpatch.decisions.place import calling_frame
from onnxpatch.formulas.symbolic import symbolic


def _landmarks(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean of each of four groups, as Nystromformer has it: padded in front where they do not divide."""
    n = x.shape[1]
    remainder = n % 4
    if remainder > 0:
        padding = 4 - (n % 4)
        x = F.pad(x, (0, 0, padding, 0), value=0)
        if mask is not None:
            mask = F.pad(mask, (padding, 0), value=False)
    if mask is not None:
        x = x * mask[..., None]
    means = x.reshape(x.shape[0], 4, -1, 3).mean(2)
    return x[:, -n:] @ means.transpose(1, 2)


@op(
    "pad",
    name="padding-in-branches",
    why="`if n % k > 0: x = F.pad(x, (0, k - n % k))` is traced at one size, and pads by k where nothing is missing",
    reason="relative error|shape|Reshape|onnxruntime fails",
    link="https://github.com/lucidrains/nystrom-attention",
    tries=lambda n: (torch.rand(2, n, 3), torch.rand(2, n) > 0.3),
    sizes=(7, 8, 3, 1, 20),
    case=_landmarks,
    unchanged="fixed sizes",
    beside=("size-shortcut", "size-shortcut-trace"),
)
def padding_in_branches(
    original: Callable[..., Tensor], input: Tensor, pad: Sequence[object], *args: object, **kwargs: object
) -> object:
    """Pads by nothing where the test of the `if` around the call is false."""
    frame = calling_frame(1)
    amounts = amounts_here(pad, frame) if frame is not None and any(map(symbolic, pad)) else None
    return NotImplemented if amounts is None else original(input, amounts, *args, **kwargs)
