"""How far eager's own answer moves when its input, or its arithmetic, moves by one rounding: if far, there is no truth
to meet. And its answer with equal values in order, where an unstable sort leaves that open."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

ROUNDING = 1e-6
DRAWS = 12


def movement(model: torch.nn.Module, args: tuple[Any, ...]) -> float:
    """The largest change of an output over a few draws, and in float64, as a part of its largest magnitude."""
    answer, nudged = _outputs(model, args), copy.deepcopy(model)
    furthest = _apart(answer, _in_float64(model, args))
    for seed in range(DRAWS):
        noise = torch.Generator().manual_seed(seed)
        for mine, own in zip(nudged.parameters(), model.parameters(), strict=True):
            mine.data = _moved(own.data, noise)  # what the layers' own arithmetic does
        moved = pytree.tree_map(lambda value, noise=noise: _moved(value, noise), args)
        furthest = max(furthest, _apart(answer, _outputs(nudged, moved)))
    return furthest


def in_order(model: torch.nn.Module, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """The model's outputs where topk and sort take the first of equal values first, as ONNX's TopK does."""
    with _Stable(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [leaf for leaf in pytree.tree_leaves(model(*copy.deepcopy(args))) if isinstance(leaf, torch.Tensor)]


class _Stable(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.topk, torch.Tensor.topk):
            return _first_of_the_sorted(*args, **kwargs)
        if func in (torch.sort, torch.Tensor.sort, torch.argsort, torch.Tensor.argsort):
            kwargs = {**kwargs, "stable": True}
        return func(*args, **kwargs)


def _first_of_the_sorted(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> torch.return_types.topk:
    return torch.return_types.topk(
        [part.narrow(dim, 0, k) for part in torch.sort(x, dim=dim, descending=largest, stable=True)]
    )


def _in_float64(model: torch.nn.Module, args: tuple[Any, ...]) -> list[torch.Tensor]:
    """What the model would answer without roundings; its answer as it is where it does not run so."""
    try:
        return _outputs(copy.deepcopy(model).double(), pytree.tree_map(_doubled, args))
    except Exception:  # a constant of the forward stays float32, and libraries check in their own ways
        return _outputs(model, args)


def _apart(answer: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    furthest = 0.0
    for one, two in zip(answer, other, strict=True):
        if one.shape == two.shape and one.numel():
            furthest = max(furthest, float((one - two).abs().max() / one.abs().max().clamp(min=1e-6)))
    return furthest


def _doubled(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _outputs(model: torch.nn.Module, args: tuple[Any, ...]) -> list[torch.Tensor]:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        leaves = pytree.tree_leaves(model(*copy.deepcopy(args)))
    return [leaf.double() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _moved(value: Any, noise: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value * (1 + ROUNDING * (torch.rand(value.shape, generator=noise) - 0.5)).to(value.dtype)
