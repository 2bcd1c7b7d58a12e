"""Forwards that keep state, change themselves or their arguments, or ask who runs them; functions of functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2 if self.calls > 1 else x


devious(sizes(4, 7, 1), ROWS)(Counter)


class CountedInABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Tensor
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


devious(sizes(4, 7, 1), ROWS)(CountedInABuffer)


class FirstIsKept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.first is None:
            self.first = x.mean()
        return x - self.first


devious(sizes(4, 7, 1), ROWS)(FirstIsKept)


class Average(nn.Module):
    """An average that is updated, then used."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


devious(sizes(4, 7, 2), ROWS)(Average)


class Swaps(nn.Module):
    """Replaces one of its own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer: nn.Module = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        self.layer = nn.Identity()
        return y


devious(sizes(4, 7, 1), ROWS)(Swaps)


@devious(sizes(4, 7, 1), ROWS)
def asks_for_export(x: Tensor) -> Tensor:
    return x * 2 if torch.onnx.is_in_onnx_export() else x


@devious(sizes(4, 7, 1), ROWS)
def asks_for_tracing(x: Tensor) -> Tensor:
    return x * 2 if torch.jit.is_tracing() or torch.compiler.is_compiling() else x


@devious(sizes(4, 7, 60), ROWS)
def type_of_a_size(x: Tensor) -> Tensor:
    n = x.shape[0]
    return x * n if type(n) is int else x


@devious(sizes(4, 7, 60), ROWS)
def number_or_tensor(x: Tensor) -> Tensor:
    n: Any = x.size(0)
    return x / ((n.item() if isinstance(n, Tensor) else n) + 1)


class Branching(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 20 else x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@devious(lambda: [(floats(4, 3),), (floats(6, 3).abs() * 9,)], ROWS)
def function_that_branches(x: Tensor) -> Any:
    return Branching.apply(x)


SIGNS = [(floats(4, 3),), (floats(6, 3).abs(),), (-floats(2, 3).abs(),)]


@devious(lambda: SIGNS, ROWS)
def cond_in_a_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: torch.cond(row.sum() > 0, lambda r: r * 2, lambda r: r - 1, (row,)))(x)


@devious(lambda: SIGNS, ROWS)
def where_in_a_vmap(x: Tensor) -> Tensor:
    return torch.vmap(lambda row: torch.where(row.sum() > 0, row * 2, row - 1))(x)


@devious(lambda: [*SIGNS, (floats(6, 3).abs() * 9,)], ROWS)
def if_beside_a_vmap(x: Tensor) -> Tensor:
    y = torch.vmap(lambda row: torch.where(row.sum() > 0, row * 2, row - 1))(x)
    return y if y.sum() > 30 else y + 1


@devious(lambda: [(floats(4, 3),), (floats(4, 3, seed=5),)])
def writes_its_argument(x: Tensor) -> Tensor:
    x.add_(1)
    x[0] *= 2
    return x.clone()


@devious(lambda: [(floats(4, 3),), (floats(7, 3, seed=5),)], ROWS)
def view_that_is_written(x: Tensor) -> Tensor:
    y = x * 1
    row = y[0]
    row += 10
    y[:, 1:].mul_(3)
    return y


@devious(sizes(4, 7, 1), ROWS)
def gradient_inside(x: Tensor) -> Tensor:
    with torch.enable_grad():
        y = x.detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad((y**3).sum(), y)
    return gradient


class Hooked(nn.Module):
    """Hooks that compute with sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.register_forward_hook(lambda module, args, output: output * output.shape[0])
        self.linear.register_forward_pre_hook(lambda module, args: (args[0] + args[0].shape[0] % 3,))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


devious(sizes(4, 7, 9, 60), ROWS)(Hooked)
