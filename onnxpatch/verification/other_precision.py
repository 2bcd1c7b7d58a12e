"""Runs copies of a model that round differently: in float64, or with every weight changed by one rounding error.

Where such a copy differs from the model, float32 does not determine the answer: a right graph may differ there, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.verification.eager import Answer, Eager

_LARGEST_COPY = 1 << 27  # parameters


def in_float64(eager: Eager, values: Sequence[object]) -> Answer:
    """The answer of the model converted to float64, what it makes float32 itself included; a refusal if it does not run
    so."""
    # A copy, since `double()` converts a model in place.
    wide = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]
    with _Wide():
        answer = _ask_copy(eager, lambda model: model.double(), wide)
    return answer if answer.outputs is None else replace(answer, outputs=tuple(map(_narrow, answer.outputs)))


class _Wide(TorchFunctionMode):
    """float64 wherever the forward asks for float32: `x.float()`, `softmax(x, dtype=float32)`, `torch.zeros(n)`."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        elif func in _FACTORIES and not (kwargs or {}).get("dtype"):
            kwargs = {**(kwargs or {}), "dtype": torch.float64}
        kwargs = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wide, args), **kwargs)


_FACTORIES: Collection[Any] = {torch.zeros, torch.ones, torch.empty, torch.linspace, torch.eye, torch.rand, torch.randn}


def _wide(value: object) -> object:
    return torch.float64 if value is torch.float32 else value


def with_moved_weights(eager: Eager, values: Sequence[object], moved: Callable[[torch.Tensor], Any]) -> Answer:
    """The answer of the model with `moved(weight)` for each of its parameters, as other roundings would leave them."""

    def move(model: torch.nn.Module) -> torch.nn.Module:
        for parameter in model.parameters():
            parameter.data = moved(parameter.data)
        return model

    return _ask_copy(eager, move, values)


def _ask_copy(eager: Eager, change: Callable[[torch.nn.Module], torch.nn.Module], values: Sequence[Any]) -> Answer:
    """The answer of a changed copy of the model; a refusal if the model is too large, or cannot be copied."""
    held = sum(p.numel() for p in eager.model.parameters()) if isinstance(eager.model, torch.nn.Module) else 0
    if held > _LARGEST_COPY:
        return Answer(None, "too large to be copied")
    try:
        copied = Eager(change(copy.deepcopy(eager.model)), eager.inputs, eager.flatten)
        copied.limits = 2 * eager.limits[0], 2 * eager.limits[1]  # a double takes twice a float
    except Exception as error:
        return Answer(None, f"no copy: {type(error).__name__}")
    return copied.ask(values)


def _narrow(output: torch.Tensor | None) -> torch.Tensor | None:
    return output.float() if output is not None and output.dtype == torch.float64 else output
