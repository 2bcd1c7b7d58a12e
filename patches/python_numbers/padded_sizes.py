"""Padding to a multiple, `(k - size % k) % k`, as models with windows and strides write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import missing_to


def _groups(x: Tensor) -> Tensor:
    """The maximum of each group of four rows, the last group padded, and the first row of each."""
    missing = (4 - x.shape[1] % 4) % 4
    padded = functional.pad(x, (0, 0, 0, missing))
    groups = padded.reshape(x.shape[0], padded.shape[1] // 4, 4, 3).amax(2)
    return groups + x[:, ::4]


@op(
    "SymInt.__mod__",
    name="padded-sizes",
    why="minutes of export, or Constraints violated: sympy cannot tell that h + (k - h % k) % k is a multiple of k",
    link="https://github.com/pytorch/pytorch/issues/136216",
    exporters=("dynamo",),
    leaner=("dynamo",),
    # Groups of 4 leave each rest once, and the last length is shorter than a group.
    tries=lambda batch, length: torch.rand(batch, length, 3),
    sizes=((2, 11), (3, 8), (1, 5), (2, 2)),
    case=_groups,
    unchanged="fixed sizes",
)
def padded_sizes(original: Callable[[Any, Any], Any], value: Any, step: Any) -> object:
    """Writes the padding as `k * ceil(size / k) - size`. If the size is added, it cancels, and sympy knows the rest."""
    if not isinstance(step, int) or step < 2:
        return NotImplemented
    # None where the value is no `step - size % step`: other remainders stay as they are written.
    size = missing_to(value, step)
    return NotImplemented if size is None else (size + (step - 1)) // step * step - size
