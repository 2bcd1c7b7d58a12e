"""Python statements on data: max and sorted of rows, break, a list of lengths, a module that answers with a bool."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted

ROWS = ({0: "n"},)
NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([[1.0, NAN, -2.0], [INF, 0.0, -INF], [-0.0, 3.0, 2.0]])


@devious(lambda: [(floats(4, 3),), (floats(4, 3, seed=8),), (-floats(4, 3),)])
def largest_row(x: Tensor) -> Tensor:
    return max(x.unbind(), key=lambda row: float(row.sum()))


@devious(lambda: [(floats(4, 3),), (floats(4, 3, seed=8),), (floats(4, 3).flip(0),)])
def rows_in_order(x: Tensor) -> Tensor:
    return torch.stack(sorted(x, key=lambda row: row[0].item()))


@devious(lambda: [(floats(4, 3),), (floats(4, 3, seed=8),), (-floats(4, 3).abs(),)], branches=True)
def stops_at_the_first(x: Tensor) -> Tensor:
    total = torch.zeros(3)
    for row in x:
        if row.sum() < 0:
            break
        total = total + row
    return total


@devious(lambda: [(torch.tensor(pair), floats(3)) for pair in ([1, 2], [2, 4], [0, 0])])
def as_often_as_told(counts: Tensor, x: Tensor) -> Tensor:
    for _ in range(int(counts.sum())):
        x = x * 1.5
    return x


@devious(lambda: [(torch.tensor(pair), floats(5, 2)) for pair in ([2, 3], [4, 1], [5, 0])])
def parts_of_a_list(lengths: Tensor, x: Tensor) -> Tensor:
    return torch.stack([part.sum(0) for part in x.split(lengths.tolist())])


@devious(
    lambda: [(floats(6),), (floats(6).abs(),), (-floats(6).abs(),), (planted(-floats(6).abs(), 3.0, 2),)], branches=True
)
def some_found(x: Tensor) -> Tensor:
    places = torch.where(x > 0)[0]
    if places.numel() == 0:
        return x.sum()
    return x[places].mean() if len(places) > 1 else x[places].sum() * 10


class Chosen(nn.Module):
    """A layer that the data chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.experts[int(x.mean(0).abs().argmax())](x)


devious(lambda: [(floats(5, 3, seed=seed),) for seed in (1, 2, 3, 4)])(Chosen)


@devious(lambda: [(floats(5),), (planted(floats(5), 50.0, 1),), (planted(floats(5), -50.0, 4),)], branches=True)
def where_and_if(x: Tensor) -> Tensor:
    y = torch.where(x.abs() > 40, torch.zeros_like(x), x)
    if (y != x).any():
        y = y / y.abs().max()
    return y


class Inner(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, bool]:
        if x.max() > 60:
            return x.clamp(max=1), True
        return x, False


class Told(nn.Module):
    """Its part answers with a Python bool."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        y, cut = self.inner(x)
        return y * 100 if cut else y


devious(lambda: [(floats(5),), (planted(floats(5), 70.0, 1),)], branches=True)(Told)


@devious(lambda: [(floats(5), torch.tensor(number)) for number in (0.5, 0.0, -2.0)])
def zero_is_false(x: Tensor, alpha: Tensor) -> Tensor:
    return x * (alpha or 9.0)


@devious(lambda: [(floats(3, 4), torch.tensor(row)) for row in ([0.1, 0.2, 0.7], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0])])
def weightless_left_out(x: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros(4)
    for row, weight in zip(x, weights.tolist(), strict=True):
        if weight != 0:
            total = total + row.exp() * weight
    return total


@devious(lambda: [(floats(4, 3), torch.tensor(2)), (floats(6, 3), torch.tensor(4)), (floats(6, 3), torch.tensor(-1))],
         ({0: "n"}, None))  # fmt: skip
def cut_by_data(x: Tensor, k: Tensor) -> Tensor:
    return x[: int(k)].sum(0) + x[int(k) :].amax(0)


@devious(lambda: [(floats(3, 3),), (ODD,)], ROWS)
def healed(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), 0.0, x.nan_to_num(5.0))


@devious(lambda: [(floats(3, 3),), (ODD,)], ROWS)
def mean_of_the_known(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), NAN, x).nanmean(1)


@devious(lambda: [(floats(3, 3),), (ODD,)], ROWS)
def larger_known(x: Tensor) -> Tensor:
    return torch.fmax(x, x.flip(0).nan_to_num(0.0, 9.0, -9.0)).clamp(-9, 9)
