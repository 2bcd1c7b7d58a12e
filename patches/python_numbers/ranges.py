"""range() of one step, where the step is a dynamic size: `range(0, n, n)`, for an input in a single chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import one_step


def _frames(x: Tensor, frame: Any = None) -> Tensor:
    """Audio in frames of a given length, or in one."""
    length = x.shape[1]
    frame = frame or length
    return torch.cat([x[:, at : at + frame].softmax(1) for at in range(0, length, frame)], 1)


@op(
    "builtins.range",
    name="whole-range",
    why="range(0, n, n): inferred a static shape, torch.export keeps the length of the example",
    reason="inferred a static shape",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/encodec/modeling_encodec.py",
    fails=("dynamo",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_frames,
    unchanged=lambda x: torch.cat([x[:, at : at + 2] for at in range(0, 4, 2)], 1),
)
def whole_range(original: Callable[..., object], *bounds: Any) -> object:
    """`range(start, start + step, step)` of a dynamic step has one number, `start`."""
    return (bounds[0],) if one_step(bounds) else NotImplemented
