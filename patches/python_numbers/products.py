"""numpy.prod and math.prod of sizes stay symbolic."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic

FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


def _flat(x: Tensor) -> Tensor:
    import numpy

    count: Any = numpy.prod(x.shape[1:3])
    return x.reshape(x.shape[0], count, -1).cumsum(1)


@op(
    "numpy.prod",
    "math.prod",
    name="symbolic-product",
    why=FROZEN,
    reason="cannot be reshaped",
    link=LINK,
    exporters=("trace",),
    tries=lambda b, h, w: torch.ones(b, h, w, 3),
    sizes=((2, 4, 5), (3, 7, 2)),
    case=_flat,
    unchanged=lambda x: x * math.prod((2, 3)),
)
def symbolic_product(original: Callable[..., Tensor], values: object) -> object:
    """Keeps `numpy.prod(x.shape[1:3])` symbolic under trace. dynamo needs no patch: SymInts are multiplied."""
    numbers = list(values) if isinstance(values, tuple | list) else []
    if not any(isinstance(number, Tensor) and symbolic(number) for number in numbers):
        return NotImplemented
    return functools.reduce(operator.mul, numbers)
