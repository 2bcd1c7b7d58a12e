"""What the proofs of patches are made of: inputs from the sizes of their axes, and models with random weights.

Under these weights a wrong graph gives wrong numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor

LOST_DIGITS = "relative error|non-finite values differ"  # a `reason` of tries by `at_magnitudes`


def numbers(b: int, n: int) -> Tensor:
    """(b, n) of both signs, the first of them 0."""
    return torch.where(torch.arange(b * n).reshape(b, n) == 0, torch.zeros(()), torch.randn(b, n))


def positive(b: int, n: int) -> Tensor:
    """(b, n) from 0.1 to 3.1."""
    return torch.rand(b, n) * 3 + 0.1


def shares(b: int, n: int) -> Tensor:
    """(b, n) between 0 and 1."""
    return torch.rand(b, n) * 0.9 + 0.05


def pairs(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Twice (b, n), of both signs; a pair in which the first is 0, and one of two equal numbers."""
    x, y = numbers(b, n), torch.randn(b, n)
    y[:, -1] = x[:, -1]
    return x, y


def integers(b: int, n: int) -> Tensor:
    """(b, n) whole numbers from -9 to 9."""
    return torch.randint(-9, 10, (b, n))


def maps(b: int, c: int, h: int, w: int) -> Tensor:
    """(b, c, h, w) of both signs."""
    return torch.randn(b, c, h, w)


def matrices(b: int, n: int, m: int) -> Tensor:
    """(b, n, m) of both signs."""
    return torch.randn(b, n, m)


def fractions(n: int) -> Tensor:
    """(n, 8) in steps from -0.9 to 0.7."""
    return torch.linspace(-0.9, 0.7, 8 * n).reshape(n, 8)


def fraction_pairs(n: int) -> tuple[Tensor, Tensor]:
    """Twice (n, 8) as `fractions`, in another order."""
    return fractions(n), fractions(n).roll(3)


def at_magnitudes(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """A proof's case: numbers from a millionth to a hundred, each magnitude an output by itself."""

    def computed(*operands: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(*(x * 10.0**power for x in operands)) for power in (-6, -5, 0, 2))

    return computed


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Set every parameter to random normal values (standard deviation 0.5) and return the module.

    New layers have biases and tables of zeros, and norms of ones: with these a wrong graph may give right numbers.
    """
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


class _Computes(torch.nn.Module):
    """A model whose forward is a function of its inputs."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        return self.function(*args)


def computing(function: Callable[..., object], *inner: torch.nn.Module) -> torch.nn.Module:
    """A model that calls a function, with its names of the inputs; code of the file in which the function stands.

    inner: modules of the model, which the function takes before the inputs; they are called as it calls them.
    """
    taken = inspect.signature(function)
    names = list(taken.parameters)[: len(inner)]

    class Computing(_Computes):
        def forward(self, *args: object) -> object:
            return self.function(*[getattr(self, name) for name in names], *args)

    Computing.__module__ = function.__module__  # where `int()` and `len()` are the model's own
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    inputs = [*taken.parameters.values()][len(inner) :]
    Computing.forward.__signature__ = taken.replace(parameters=[own, *inputs])  # type: ignore[attr-defined]
    made = Computing(function)
    for name, module in zip(names, inner, strict=True):
        setattr(made, name, module)
    return made


def of_map(layer: torch.nn.Module) -> torch.nn.Module:
    """A model that feeds a (B, H, W, C) map to a layer that takes (B, H * W, C) and (H, W); its first output.

    The layer's parameters are randomised.
    """

    def computed(layer: torch.nn.Module, x: Tensor) -> object:
        out = layer(x.flatten(1, 2), (x.shape[1], x.shape[2]))
        return out[0] if isinstance(out, tuple) else out

    return computing(computed, randomised(layer))
