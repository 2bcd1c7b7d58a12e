"""Random numbers that make no difference here, or only for some data."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


@devious(sizes(4, 1, 9), ROWS)
def always_below_two(x: Tensor) -> Tensor:
    return torch.where(torch.rand(x.shape[0], 1) < 2, x, -x)


@devious(
    lambda: [(torch.tensor([[0.0, 1.0, 0.0]] * 2),), (torch.tensor([[1.0, 0.0, 0.0]] * 3),), (torch.ones(40, 3),)], ROWS
)
def drawn_by_weights(p: Tensor) -> Tensor:
    return torch.multinomial(p, 1)


@devious(lambda: [(torch.eye(3) * 1e6,), (torch.eye(3).flip(0) * 1e6,), (floats(3, 3),)])
def gumbel_of_sure_ones(x: Tensor) -> Tensor:
    return F.gumbel_softmax(x, hard=True)


@devious(sizes(4, 1, 9), ROWS)
def one_of_one(x: Tensor) -> Tensor:
    return x + torch.randint(0, 1, (x.shape[0], 1)) + torch.randint_like(x, 3, 4)


@devious(lambda: [(floats(4, 3).abs(),), (floats(6, 3),)], ROWS)
def leaky_at_random(x: Tensor) -> Tensor:
    return F.rrelu(x, training=True)


@devious(sizes(4, 1, 9), ROWS)
def uniform_between_equals(x: Tensor) -> Tensor:
    return x + torch.empty(x.shape[0], 1).uniform_(2, 2) + torch.zeros_like(x).normal_(1, 0)


@devious(sizes(4, 1, 9, width=8), ROWS)
def sorted_noise(x: Tensor) -> Tensor:
    return x.gather(1, torch.rand_like(x).argsort(1)).sum(1)


@devious(
    lambda: [(floats(4, 3), torch.tensor(0.0)), (floats(4, 3), torch.tensor(1.0)), (floats(4, 3), torch.tensor(0.5))]
)
def dropped_by_a_told_share(x: Tensor, p: Tensor) -> Tensor:
    return x * (torch.rand_like(x) >= p)


@devious(lambda: [(floats(4, 3) - 9,), (floats(4, 3),), (floats(4, 3) + 9,)])
def coins_that_saturate(x: Tensor) -> Tensor:
    return torch.bernoulli((x * 100).sigmoid())
