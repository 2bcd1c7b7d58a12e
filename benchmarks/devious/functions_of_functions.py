"""torch.cond, while_loop, scan, vmap, derivatives and functions with a backward of their own, inside a forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan, while_loop
from torch.utils.checkpoint import checkpoint

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
SIGNS = lambda: [(floats(4, 3),), (floats(6, 3).abs(),), (-floats(2, 3).abs(),)]  # noqa: E731


@devious(SIGNS, ROWS, branches=True)
def cond_of_a_sum(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


@devious(SIGNS, ROWS, branches=True)
def cond_in_a_cond(x: Tensor) -> Tensor:
    def positive(y: Tensor) -> Tensor:
        return torch.cond(y.max() > 2, lambda z: z.clamp(max=2), lambda z: z + 1, (y,))

    return torch.cond(x.mean() > 0, positive, lambda y: y.flip(0), (x,))


class CondOfLayers(nn.Module):
    """Chooses a layer by its data, and resizes by its own size afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, self.a, self.b, (x,))
        return y[: y.shape[0] // 2 + 1] * y.shape[0]


devious(SIGNS, ROWS, branches=True)(CondOfLayers)


@devious(lambda: [(floats(4, 3),), (floats(4, 3) * 100,), (floats(6, 3) * 1000,)], ROWS, branches=True)
def loop_until_small(x: Tensor) -> Tensor:
    (found,) = while_loop(lambda y: y.abs().max() > 1, lambda y: (y / 2,), (x.clone(),))
    return found


@devious(sizes(5, 1, 2, 9), ROWS)
def scanned_rows(x: Tensor) -> Tensor:
    last, rows = scan(lambda carry, row: (carry * 0.5 + row, carry + row), torch.zeros(3), x)
    return rows + last


@devious(sizes(5, 1, 2, 9), ROWS)
def mapped_rows(x: Tensor) -> Tensor:
    return torch_map(lambda row, scale: row.softmax(0) * scale, x, torch.arange(3.0))


@devious(sizes(5, 1, 2, 9), ROWS)
def vmapped_columns(x: Tensor) -> Tensor:
    return torch.vmap(lambda column, k: column.cumsum(0) * k, in_dims=(1, 0), out_dims=1)(x, torch.arange(3.0))


@devious(sizes(5, 1, 2, 9), ROWS)
def vmapped_twice(x: Tensor) -> Tensor:
    return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum())(x))(x)


@devious(sizes(5, 1, 2, 9), ROWS)
def derivative(x: Tensor) -> Tensor:
    return torch.func.grad(lambda y: (y.sin() * y).sum())(x)


@devious(sizes(5, 1, 2, 9), ROWS)
def tangent(x: Tensor) -> Tensor:
    value, moved = torch.func.jvp(lambda y: y**3, (x,), (torch.ones_like(x),))
    return value + moved


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        return x.clamp(-limit, limit) * x.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


@devious(sizes(5, 1, 2, 9), ROWS)
def function_with_a_size(x: Tensor) -> Any:
    return Clipped.apply(x, 0.5)


class Rounded(torch.autograd.Function):
    """Several outputs, one of them none, and a static forward with a setup of its own."""

    @staticmethod
    def forward(x: Tensor) -> Any:
        return x.round(), x.sign()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0]


@devious(sizes(5, 1, 2, 9), ROWS)
def function_of_two_outputs(x: Tensor) -> Tensor:
    whole, sign = Rounded.apply(x * 3)
    return whole + sign * x.shape[0]


@devious(sizes(5, 1, 2, 9), ROWS)
def checkpointed(x: Tensor) -> Any:
    return checkpoint(lambda y: (y @ y.mT).relu().sum(1) / y.shape[0], x, use_reentrant=False)


class Called(nn.Module):
    """Calls a layer with other weights than its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Any:
        weights = {name: value * x.shape[0] for name, value in self.layer.named_parameters()}
        return torch.func.functional_call(self.layer, weights, (x,))


devious(sizes(5, 1, 2, 9), ROWS)(Called)


@devious(sizes(5, 1, 2, 9), ROWS)
def in_lower_precision(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ torch.eye(3)
    return y.float().round() + x.shape[0]
