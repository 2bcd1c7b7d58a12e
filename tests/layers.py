"""Layers and models that the engine's tests patch; `Doubling` is what stands in for `Layer`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """The layer that is patched."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.offset


class SubLayer(Layer):
    """A subclass that overrides nothing."""


class Doubling:
    """Stand-in whose output tells that it ran."""

    @staticmethod
    def onnxpatch_prepare(module, settings):
        return {"factor": 2}

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.offset + self.factor


class Model(nn.Module):
    """Every way a module can hang in a model: named, aliased, under two parents, in a list and a dict, tied, hooked."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Layer()
        self.again = self.first
        self.block = nn.Sequential(Layer(), nn.Linear(4, 4), self.first)
        self.plain = [Layer(), nn.Linear(4, 4)]
        self.by_name = {"only": Layer()}
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.block[1].weight
        self.frozen = Layer().requires_grad_(False)
        self.frozen.eval()
        self.hooked = Layer()
        self.hooked.register_forward_hook(lambda module, args, out: out + 0)
        nn.utils.parametrizations.weight_norm(self.tied)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.again(self.first(x)))
        x = self.by_name["only"](self.plain[1](self.plain[0](x)))
        return self.hooked(self.frozen(self.tied(x)))


class Computes(nn.Module):
    """A model whose forward is a function of its inputs."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        return self.function(*args)
