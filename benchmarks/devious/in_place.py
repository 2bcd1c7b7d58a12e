"""Writes through views: one memory under several names, `out=`, assignments with places given by data."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
SOME = sizes(6, 1, 2, 3, 9, 12)


@devious(SOME, ROWS)
def written_through_a_flat_view(x: Tensor) -> Tensor:
    y = x.clone()
    y.view(-1)[::2] = 0
    y.view(-1)[-1] += 5
    return y


@devious(SOME, ROWS)
def columns_swapped(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0], y[:, 1] = y[:, 1], y[:, 0]
    return y


@devious(SOME, ROWS)
def diagonal_filled(x: Tensor) -> Tensor:
    y = x @ x.mT
    y.diagonal().fill_(-1)
    y.mT[0].mul_(3)
    return y.relu_()


@devious(SOME, ROWS)
def rows_unbound(x: Tensor) -> Tensor:
    y = x.clone()
    first, second, third = y.unbind(1)
    first.add_(second)
    third.copy_(first.flip(0))
    return y


@devious(SOME, ROWS)
def argument_is_the_output(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x
    y = y.add_(1)
    return y, x, x[:1]


@devious(SOME, ROWS)
def into_a_given_tensor(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    torch.mul(x, 2, out=y)
    torch.cumsum(x, 0, out=y[:, :])
    return y + torch.add(x, 1, alpha=2, out=torch.empty(0))


@devious(lambda: [(floats(5, 3), torch.tensor(places)) for places in ([0, 2, -1], [-5, 4, 1], [3, 3, 3])])
def negative_places(x: Tensor, places: Tensor) -> Tensor:
    y = x.clone()
    y[places] = y[places] * 10
    y[places, -1] += 1
    return y + x[places].sum(0)


@devious(lambda: [(floats(5, 3), torch.tensor(places)) for places in ([0, 2, 1], [1, 1, 1], [4, 4, 0])])
def added_at_the_same_place(x: Tensor, places: Tensor) -> Tensor:
    y = x.clone()
    y.index_put_((places,), x[:3], accumulate=True)
    y.index_add_(0, places, x[:3], alpha=2)
    return y


@devious(lambda: [(floats(5, 3),), (-floats(5, 3),), (floats(5, 3).abs(),), (-floats(5, 3).abs(),)], branches=True)
def masked_places_written(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = -1
    y[x[:, 0] < 0, 1:] *= 2
    y[x.isnan()] = 4
    return y


@devious(lambda: [(floats(5, 3), torch.tensor(k)) for k in (2, 0, 5, 9, -2, -9)])
def slices_by_data(x: Tensor, k: Tensor) -> Tensor:
    y = x.clone()
    y[: int(k)] = 0
    return torch.cat([y, x[int(k) :], x[:: max(1, int(k))]])


@devious(SOME, ROWS)
def shorter_and_longer(x: Tensor) -> Tensor:
    y = x.new_zeros(x.shape[0] + 4, 3)
    y[2:-2] = x
    y[-1:] = x[-1:]
    y[x.shape[0] :][:2] -= 1
    return y


@devious(SOME, ROWS)
def row_after_row(x: Tensor) -> Tensor:
    y = x.clone()
    for i in range(1, y.shape[0]):
        y[i] = y[i] + 0.5 * y[i - 1]
    return y


@devious(SOME, ROWS)
def list_of_views(x: Tensor) -> Tensor:
    y = x.clone()
    parts = [y[:1], y[1:], y[..., :2]]
    for i, part in enumerate(parts):
        part += i
    return torch.cat(parts[:2]) + y.mean()
