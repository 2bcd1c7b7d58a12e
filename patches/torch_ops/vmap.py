"""torch.vmap whose results have the batch elsewhere than in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op


def _weighted(x: Tensor, k: Tensor) -> Any:
    """Each row by its sum or by its first number; the batch is the last axis of one result, the first of another."""
    rows = torch.func.vmap(lambda r, i: torch.where(i == 0, r.sum(), r[0]) * r, out_dims=1)(x, k)
    return rows, *torch.vmap(lambda r, i: (r.outer(r) + i, r.amax()), out_dims=(-1, 0))(x, k)


@op(
    "vmap",
    "func.vmap",
    name="vmap-batch-moved",
    why="We found a fake tensor in the exported program constant's list; .numpy() is not supported for tensor "
    "subclasses",
    reason="fake tensor|subclasses",
    link="https://pytorch.org/docs/stable/generated/torch.func.vmap.html",
    exporters=("dynamo",),
    tries=lambda b, n: (torch.randn(b, n), torch.arange(b) % 2),
    sizes=((3, 5), (4, 7), (1, 2)),
    case=_weighted,
    unchanged=lambda x, k: torch.func.vmap(lambda r, i: r * i)(x, k),
)
def vmap(
    original: Callable[..., Callable[..., Any]], func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0,
    randomness: str = "error", *, chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """The batch comes out in front, and is moved then."""
    if out_dims == 0 or not _whole(out_dims):
        return NotImplemented
    mapped = original(func, in_dims, 0, randomness, chunk_size=chunk_size)
    return lambda *args, **kwargs: _moved(mapped(*args, **kwargs), out_dims)


def _whole(dims: Any) -> bool:
    """Whether each result has the batch; None stands for one without."""
    return all(map(_whole, dims)) if isinstance(dims, tuple | list) else isinstance(dims, int)


def _moved(value: Any, dims: Any) -> Any:
    if isinstance(value, Tensor):
        return value.movedim(0, dims)
    each = dims if isinstance(dims, tuple | list) else [dims] * len(value)
    if isinstance(value, dict):
        return {key: _moved(one, dim) for (key, one), dim in zip(value.items(), each, strict=True)}
    return type(value)(_moved(one, dim) for one, dim in zip(value, each, strict=True))
