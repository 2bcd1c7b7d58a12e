"""What a torch call does besides returning a value: whether it writes in place, and whether it draws random numbers.

A call is judged by the name of its function and by its arguments: `x.add_(1)`, `x += 1`, `torch.add(a, b, out=c)` and
`F.relu(x, inplace=True)` write in place; `torch.rand_like(x)` and `F.dropout(x)` in training draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from onnxpatch.control_flow.pytrees import tensors

_RANDOM = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial"}
    | {"normal", "poisson", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "cauchy_", "geometric_"}
    | {"log_normal_", "rrelu", "gumbel_softmax", "fractional_max_pool2d"}
)
# `x += y` calls Tensor.__iadd__: the operators that have such a form.
_OPERATORS = frozenset(
    {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "div", "matmul"}
)


@dataclass(frozen=True)
class OnACopy:
    """What `function` does in place, done on a copy of its first argument, which is returned."""

    function: Callable[..., object]

    def __call__(self, target: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        copy = target.clone()
        self.function(copy, *args, **kwargs)
        return copy

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "update").strip("_")


def is_mutation(function: Callable[..., object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call writes into one of its argument tensors."""
    if isinstance(function, OnACopy):
        return False
    name = getattr(function, "__name__", "")
    if name.startswith("__"):
        # `x.data = y` reaches a mode as the `__set__` of a property.
        return name in ("__setitem__", "__set__") or (name[2] == "i" and name[3:-2] in _OPERATORS)
    return name.endswith("_") or kwargs.get("out") is not None or kwargs.get("inplace") is True


def is_random(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call draws random numbers."""
    name = getattr(function, "__name__", "")
    if "dropout" in name:  # F.dropout(input, p, training)
        # At evaluation dropout draws nothing.
        return bool(kwargs.get("training", args[2] if len(args) > 2 else True))
    return name in _RANDOM


def written_tensors(args: Sequence[object], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
    """The tensors that a call which mutates writes into: `out=`, else its first argument."""
    out = kwargs.get("out")
    return tensors(out) if out is not None else tensors(args[:1])
