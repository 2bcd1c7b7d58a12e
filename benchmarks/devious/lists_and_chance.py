"""Outputs whose number depends on the input, and random numbers that make no difference at the example."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
SIGNS = lambda: [(floats(3, 2).abs(),), (-floats(3, 2).abs(),)]  # noqa: E731


@devious(SIGNS)
def one_or_two(x: Tensor) -> list[Tensor]:
    return [x, x * 2] if x.sum() < 0 else [x]


@devious(SIGNS, ROWS)
def stacked_list(x: Tensor) -> Tensor:
    rows = [x]
    if x.mean() < 0:
        rows.append(x * 2)
    return torch.cat(rows)


@devious(SIGNS, ROWS)
def sum_of_a_list(x: Tensor) -> Tensor:
    layers = [x, x.relu(), x.tanh()] if x.min() < 0 else [x.sigmoid()]
    return torch.stack(layers).sum(0) / len(layers)


@devious(lambda: [([floats(2, 3), floats(2, 3, seed=2)],), ([floats(2, 3, seed=4), -floats(2, 3)],),
                 ([floats(2, 3) + 9, floats(2, 3)],), ([floats(2, 3), floats(2, 3) + 9],)])  # fmt: skip
def list_of_inputs(xs: list[Tensor]) -> Tensor:
    return sum(xs, torch.zeros(())) if xs[0].sum() > xs[1].sum() else xs[0]


@devious(sizes(3, 6, 1, 4), ROWS)
def a_row_each(x: Tensor) -> Tensor:
    return torch.stack([row * i for i, row in enumerate(x)])


@devious(lambda: [(floats(2, 3).clamp(-1, 1),), (planted(floats(2, 3).clamp(-1, 1), 50.0, 2),),
                 (torch.full((2, 3), 20.0),)])  # fmt: skip
def noise_on_large_numbers(x: Tensor) -> Tensor:
    return x + torch.rand_like(x) * (x > 10)


@devious(sizes(1, 4, 9), ROWS)
def shuffled_rows(x: Tensor) -> Tensor:
    return x[torch.randperm(x.shape[0])]


@devious(sizes(1, 5, 2), ROWS)
def centred_noise(x: Tensor) -> Tensor:
    noise = torch.rand(x.shape[0], 1)
    return x + noise - noise.mean(0)


@devious(lambda: [(torch.tensor([0.0, 1.0, 1.0]),), (torch.tensor([0.5, 0.5, 0.5]),), (torch.tensor([0.2, 0.9, 1.0]),)])
def certain_coin(p: Tensor) -> Tensor:
    return torch.bernoulli(p.clamp(0, 1))


@devious(lambda: [(torch.zeros(2, 3),), (floats(2, 3),)])
def dropout_of_nothing(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, training=True)


@devious(lambda: [(-floats(2, 3).abs(),), (floats(2, 3),)])
def noise_above_zero(x: Tensor) -> Tensor:
    return x + torch.randn(2, 3) * x.relu()
