"""`isinstance(size, torch.Tensor)`: under torch.jit.trace a size is a tensor, in eager an int."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


def _trimmed(x: Tensor, reference: object) -> Tensor:
    """The first rows, as many as another tensor has, or as a number says."""
    return x[:, : reference.size(1)] if isinstance(reference, Tensor) else x[:, :reference]


def _trims(x: Tensor) -> Tensor:
    doubled = torch.cat([x, x * 2], 1).softmax(1)
    return _trimmed(doubled, x.shape[1]) + _trimmed(doubled, x)


@op(
    "builtins.isinstance",
    name="types-of-sizes",
    why="Dimension specified as 1 but tensor has no dimensions: `isinstance(length, torch.Tensor)` is true of a size "
    "while the trace exporter runs, and the code takes it for a tensor",
    reason="has no dimensions|out of range",
    link="https://github.com/facebookresearch/demucs/blob/main/demucs/utils.py",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_trims,
    unchanged=lambda x: x * 2 if isinstance(x, Tensor) else x,
)
def types_of_sizes(original: Callable[..., bool], value: object, classes: object) -> bool:
    """Answers as for an int, where a whole number of sizes is compared with torch.Tensor."""
    if not isinstance(value, Tensor) or value.dim() or value.dtype != torch.int64:
        return NotImplemented
    asked = _flat(classes)
    if Tensor not in asked or not symbolic(value):
        return NotImplemented
    return any(one is not Tensor and original(0, one) for one in asked)


def _flat(classes: object) -> tuple[Any, ...]:
    """The classes of a class, a union or a nest of tuples."""
    inner = classes if isinstance(classes, tuple) else typing.get_args(classes)
    return tuple(one for part in inner for one in _flat(part)) if inner else (classes,)
