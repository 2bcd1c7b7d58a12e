"""Stable sort, searchsorted, bucketize, median, kthvalue and quantile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from onnxpatch import Proof, exporting, patch, running_model
from onnxpatch.formulas import order_statistics
from onnxpatch.formulas.searching import search
from onnxpatch.formulas.tracing import traced_from, tracing_paused


class Found(NamedTuple):
    """torch's result of a search along an axis: values and their indices."""

    values: torch.Tensor
    indices: torch.Tensor


class _Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, order = torch.sort(x, dim=1, stable=True)
        again = torch.sort(x.abs(), dim=1, stable=False).values
        return values, torch.argsort(x[..., 0], dim=-1, descending=True, stable=True) + order[..., 0], again


@patch(
    "torch.sort",
    "torch.Tensor.sort",
    "torch.argsort",
    "torch.Tensor.argsort",
    name="stable-sort",
    why="ONNX export of operator Sort, Out parameter is not supported; No ONNX function found for aten.sort.stable",
    link="https://github.com/pytorch/pytorch/issues/108520",
    proof=Proof(
        build=_Sorted,
        # Rounded, so that there are equal entries, whose order a stable sort keeps.
        inputs=lambda: [(torch.randn(b, n, 3).round(),) for b, n in ((2, 5), (3, 9), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace", "dynamo"),
        reason="aten.sort|operator Sort",
    ),
)
def sort(
    original: Callable[..., torch.Tensor],
    input: torch.Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool | None = None,
) -> object:
    """sort(stable=True) as TopK over all entries. ONNX's TopK keeps the order of equal entries; torch.topk does not.

    stable=False is left out: torch's default, which exporters know.
    """
    if not stable:
        return NotImplemented if stable is None else original(input, dim, descending)
    found = input.topk(input.shape[dim], dim=dim, largest=descending, sorted=True)
    return found[1] if "argsort" in original.__name__ else Found(*found)


class _Search(torch.nn.Module):
    bins: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bins", torch.linspace(-2, 2, 9))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = torch.searchsorted(x.sort(-1).values, x.round(), right=True)
        return torch.searchsorted(self.bins, x.round()), own, torch.bucketize(x.round(), self.bins, right=True)


@patch(
    "torch.searchsorted",
    "torch.bucketize",
    name="searchsorted",
    why="Exporting the operator 'aten::searchsorted' to ONNX is not supported; nor aten.bucketize",
    link="https://github.com/pytorch/pytorch/issues/79503",
    proof=Proof(
        build=_Search,
        inputs=lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 5), (3, 9), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace", "dynamo"),
        reason="aten.searchsorted|aten::searchsorted",
    ),
)
def searchsorted(
    original: Callable[..., torch.Tensor],
    sorted_sequence: object = None, input: object = None, *, boundaries: Any = None, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Counts the boundaries before each value, by a search tree."""
    if boundaries is None:
        boundaries, values = sorted_sequence, input
    else:  # bucketize: the values are the first argument
        values = sorted_sequence
    # torch.searchsorted takes a Python number, too.
    values = torch.as_tensor(values, device=boundaries.device)
    if sorter is not None:
        # The order in which the table is sorted is given apart from it.
        boundaries = boundaries.gather(-1, sorter)
    right = right or side == "right"
    found = search(boundaries, values, right=right, length=_stored_length(boundaries))
    return found.to(torch.int32) if out_int32 else found


def _stored_length(boundaries: torch.Tensor) -> int | None:
    """The length of boundaries that are a parameter or buffer; None for others. Under trace sizes are tensors."""
    running = running_model() if exporting() == "trace" else None
    if running is None or not traced_from(boundaries, running.tensors.values()):
        return None
    with tracing_paused():
        return int(boundaries.shape[-1])


class _Middle(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.median(dim=1).values, x.median(), x.kthvalue(2, dim=1).values, torch.quantile(x, 0.3, dim=1)


@patch(
    "torch.median",
    "torch.Tensor.median",
    "torch.kthvalue",
    "torch.Tensor.kthvalue",
    "torch.quantile",
    "torch.Tensor.quantile",
    name="order-statistics",
    why="Exporting the operator 'aten::median' / 'aten::kthvalue' / 'aten::quantile' to ONNX is not supported",
    link="https://github.com/pytorch/pytorch/issues/121627",
    proof=Proof(
        build=_Middle,
        inputs=lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 5), (3, 8), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace", "dynamo"),
        reason="aten.median|aten::median",
    ),
)
def order_statistic(original: Callable[..., torch.Tensor], input: torch.Tensor, **given: object) -> object:
    """Computes median, kthvalue or quantile from the smallest entries of the axis."""
    forms: dict[str, Callable[..., Any]] = {"median": median, "kthvalue": kthvalue, "quantile": quantile}
    return forms[original.__name__](input, **given)


def length(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The size of an axis as a 0-d tensor."""
    return torch.ones_like(torch.arange(x.shape[dim], device=x.device)).sum()


def _ascending(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x.topk(x.shape[dim], dim=dim, largest=False, sorted=True)


def median(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """torch.median: the lower of the two middle entries."""
    if dim is None:
        return median(x.flatten(), 0).values
    return Found(*order_statistics.median(x, dim, keepdim))


def kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """torch.kthvalue: the k-th smallest entry and its index."""
    return Found(*order_statistics.kthvalue(x, k, dim, keepdim))


def quantile(
    x: torch.Tensor, q: object, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> torch.Tensor:
    """torch.quantile: interpolated between the two entries around q (n - 1). Several q become the first axis."""
    if dim is None:
        flat = quantile(x.flatten(), q, 0, interpolation=interpolation)
        return flat.reshape([*flat.shape, *([1] * x.dim())]) if keepdim else flat
    share = torch.as_tensor(q, dtype=x.dtype, device=x.device)
    place = share.reshape(-1) * (length(x, dim) - 1).to(x.dtype)
    low, high = place.floor(), place.ceil()
    ordered = _ascending(x, dim)[0]
    below, above = (ordered.index_select(dim, edge.to(torch.int64)) for edge in (low, high))
    steps = [-1 if axis == dim % x.dim() else 1 for axis in range(x.dim())]
    weight = _weights(interpolation, place, low).view(steps)
    mixed = (below + (above - below) * weight).movedim(dim, 0)
    mixed = mixed.unsqueeze(dim % x.dim() + 1) if keepdim else mixed
    return mixed if share.dim() else mixed.squeeze(0)


def _weights(interpolation: str, place: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    # Functions, so that the nodes of one form only are recorded.
    return {
        "linear": lambda: place - low,
        "lower": lambda: torch.zeros_like(place),
        "higher": lambda: torch.ones_like(place),
        "midpoint": lambda: torch.full_like(place, 0.5),
        "nearest": lambda: torch.round(place) - low,
    }[interpolation]()
