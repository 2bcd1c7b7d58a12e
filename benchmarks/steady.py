"""How far eager's own answer moves when its input moves by one rounding: if far, there is no truth to meet."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils import _pytree as pytree

ROUNDING = 1e-6
DRAWS = 4


def movement(model: torch.nn.Module, args: tuple[Any, ...]) -> float:
    """The largest change of an output over a few draws, as a part of that output's largest magnitude."""
    answer = _outputs(model, args)
    furthest = 0.0
    for seed in range(DRAWS):
        noise = torch.Generator().manual_seed(seed)
        other = _outputs(model, pytree.tree_map(lambda value, noise=noise: _moved(value, noise), args))
        for one, two in zip(answer, other, strict=True):
            if one.shape == two.shape and one.numel():
                furthest = max(furthest, float((one - two).abs().max() / one.abs().max().clamp(min=1e-6)))
    return furthest


def _outputs(model: torch.nn.Module, args: tuple[Any, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        leaves = pytree.tree_leaves(model(*copy.deepcopy(args)))
    return [leaf.double() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _moved(value: Any, noise: torch.Generator) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value * (1 + ROUNDING * (torch.rand(value.shape, generator=noise) - 0.5)).to(value.dtype)
