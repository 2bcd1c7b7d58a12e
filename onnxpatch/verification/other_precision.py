"""Runs copies of a model that round differently: in float64, or with every weight changed by one rounding error.

Where such a copy differs from the model, float32 does not determine the answer: a right graph may differ there, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.verification.eager import Answer, Eager

_LARGEST_COPY = 1 << 27  # parameters


def in_float64(eager: Eager, values: Sequence[object]) -> Answer:
    """The answer of the model converted to float64; a refusal if it does not run so.

    Tensors that the forward itself makes float32 stay so.
    """
    # A copy, since `double()` converts a model in place.
    wide = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]
    answer = _ask_copy(eager, lambda model: model.double(), wide)
    return answer if answer.outputs is None else replace(answer, outputs=tuple(map(_narrow, answer.outputs)))


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
    except Exception as error:
        return Answer(None, f"no copy: {type(error).__name__}")
    return copied.ask(values)


def _narrow(output: torch.Tensor | None) -> torch.Tensor | None:
    return output.float() if output is not None and output.dtype == torch.float64 else output
