"""The shape of a result, for operators whose arguments already say it, so that torch need not derive it.

On symbolic sizes torch's own kernels for these compare sizes at length: tens of milliseconds for one `reshape`, where
naming its sizes takes one. Nothing of the data and no stride is needed, since a trace only asks for sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ATEN = torch.ops.aten


def result_shape(operator: object, args: Sequence[object]) -> list[Any] | None:
    """The shape of an operator's one result, which has the dtype of its first argument; None if it is not known here.

    args: the positional arguments, with fake tensors for tensors.
    """
    shape = _SHAPES.get(operator)
    return None if shape is None else shape(*args)


def _reshaped(x: torch.Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    if not all(isinstance(size, int | torch.SymInt) for size in sizes):
        return None
    inferred = [place for place, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    shape = list(sizes)
    for place in inferred:
        shape[place] = x.numel() // math.prod(size for other, size in enumerate(sizes) if other != place)
    return shape


def _flattened(x: torch.Tensor, first: int, last: int) -> list[Any] | None:
    if not x.dim():
        return None
    first, last = first % x.dim(), last % x.dim()
    return [*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]]


def _projected(x: torch.Tensor, weight: torch.Tensor, bias: object = None) -> list[Any] | None:
    return [*x.shape[:-1], weight.shape[0]] if weight.dim() == 2 else None


def _same(x: torch.Tensor, *_: object) -> list[object]:
    return list(x.shape)


_SHAPES: dict[Any, Callable[..., list[Any] | None]] = {
    _ATEN.reshape.default: _reshaped,
    _ATEN.view.default: _reshaped,
    _ATEN.flatten.using_ints: _flattened,
    _ATEN.linear.default: _projected,
    _ATEN.contiguous.default: _same,
    _ATEN.dropout.default: _same,
    _ATEN.gelu.default: _same,
    _ATEN.layer_norm.default: _same,
}
