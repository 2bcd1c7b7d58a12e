"""Writes in place to tensors that forward made of numbers: `places = torch.tensor([0, 1]); places += 1`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.tracing import function_name, keep_constant


def _shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.tensor([[0, 1], [-1, 0]] * 2)
    places += torch.arange(4).unsqueeze(1) // 2
    weights = torch.tensor([1.0, 2.0, 3.0])
    first = x[:, :3] * weights
    weights[0] = 5.0
    thrice = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(0)
    thrice.mul_(3)
    return x[:, places], first + weights * thrice


def _counted(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.tensor(2.0)
    scale -= 0.5
    return _shifted(x * scale)


_SIGNS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_WRITING = frozenset(("__setitem__", "__idiv__", *(f"__i{sign}__" for sign in _SIGNS)))


def writes(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call writes to its first argument, by its name: `add_`, `__iadd__`, `__setitem__`."""
    name = function_name(function)
    in_place = name in _WRITING or (name.endswith("_") and not name.endswith("__"))
    return in_place and bool(args) and isinstance(args[0], Tensor)


@patch(
    "torch.*",
    name="written-constants",
    why="relative error: torch.tensor([...]) that is written to in place (`places += 1`) is a constant of the graph "
    "without a copy: it is written to twice, silently",
    link="https://github.com/pytorch/pytorch/issues/22097",
    exporters=("trace",),
    calls=writes,
    proof=Proof(
        lambda: Computes(_counted),
        lambda: [(torch.randn(b, 4),) for b in (2, 3, 1)],
        ({0: "batch"},),
        fails=("trace",),
        reason="relative error",
        unchanged=lambda: Computes(lambda x: x.clone().mul_(2)),
    ),
)
def written_constants(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:
    """Copies the constant in the graph, then writes."""
    return original(*args, **kwargs) if keep_constant(args[0]) else NotImplemented
