"""Models for proofs of patches: random weights under which a wrong graph gives wrong numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Set every parameter to random normal values (standard deviation 0.5) and return the module.

    New layers have biases and tables of zeros, and norms of ones: with these a wrong graph may give right numbers.
    """
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


class Computes(torch.nn.Module):
    """A model whose forward is a function of its inputs."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        return self.function(*args)


def computing(function: Callable[..., object]) -> Computes:
    """The same with the function's own names of the inputs; code of the file in which the function stands."""

    class Computing(Computes):
        def forward(self, *args: object) -> object:
            return self.function(*args)

    Computing.__module__ = function.__module__  # where `int()` and `len()` are the model's own
    taken = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    Computing.forward.__signature__ = taken.replace(parameters=[own, *taken.parameters.values()])  # type: ignore[attr-defined]
    return Computing(function)


class OfMap(torch.nn.Module):
    """Feeds a (B, H, W, C) map to a layer that takes (B, H * W, C) and (H, W); returns the first output.

    The layer's parameters are randomised.
    """

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = randomised(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layer(x.flatten(1, 2), (x.shape[1], x.shape[2]))
        return out[0] if isinstance(out, tuple) else out
