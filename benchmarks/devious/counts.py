"""Branches on numbers computed from the data: counts, shares, spans, parity, and Python's arithmetic on them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])
NAN = float("nan")


@devious(lambda: [(floats(3, 4),), (planted(floats(3, 4), 4.0, 1, 7),), (planted(floats(3, 4), 4.0, 1),)], ROWS)
def two_above_three(x: Tensor) -> Tensor:
    return x.clamp(max=3) if (x > 3).sum() >= 2 else x


@devious(lambda: [(floats(3, 4),), (planted(floats(3, 4), NAN, 5),), (planted(floats(3, 4), NAN, 0, 11),)])
def any_nan(x: Tensor) -> Tensor:
    return torch.zeros_like(x) if x.isnan().any() else x


@devious(lambda: [(floats(2, 6),), (planted(floats(2, 6).abs(), -1.0, 3),), (floats(2, 6).abs(),)])
def mostly_positive(x: Tensor) -> Tensor:
    return x.sqrt().nan_to_num() if (x > 0).float().mean() > 0.9 else x


@devious(lambda: [(floats(4),), (torch.tensor([90.0, -40.0, 1.0, 2.0]),), (planted(floats(4), 150.0, 2),)])
def wide_span(x: Tensor) -> Tensor:
    return x / 100 if x.max() - x.min() > 100 else x


@devious(lambda: [(IDS,), (planted(IDS, 5, 2),), (planted(IDS, 5, 2, 6),)])
def even_number_of_fives(ids: Tensor) -> Tensor:
    return ids * 3 if (ids == 5).sum() % 2 == 0 else ids


@devious(lambda: [(floats(5),), (torch.full((5,), 5.2),), (torch.full((5,), -5.2),)])
def twice_the_total(x: Tensor) -> Tensor:
    total = x.sum().item()
    return x * 0.5 if abs(total * 2) > 50 else x


@devious(lambda: [(floats(5),), (torch.tensor([1.0, 2.0, 0.0, 4.0, 0.0]),), (torch.full((5,), 3.0),)])
def whole_total(x: Tensor) -> Tensor:
    return x + 1 if x.sum().item().is_integer() else x


@devious(lambda: [(floats(5).abs(),), (torch.full((5,), 20.0),), (torch.full((5,), 3.0),)])
def root_of_the_total(x: Tensor) -> Tensor:
    return x - 1 if math.sqrt(x.sum().item()) > 9 else x


@devious(lambda: [(floats(4), torch.tensor(1)), (floats(4), torch.tensor(3)), (floats(4), torch.tensor(7))])
def named_mode(x: Tensor, mode: Tensor) -> Tensor:
    return {1: torch.sin, 3: torch.cos}.get(int(mode), torch.exp)(x)


@devious(lambda: [(floats(4), torch.tensor(0.5)), (floats(4), torch.tensor(1.5)), (floats(4), torch.tensor(-3.0))])
def known_rates(x: Tensor, rate: Tensor) -> Tensor:
    return x * rate if rate.item() in (0.5, 1.0, 1.5) and rate.item() != 1.5 else -x


@devious(lambda: [(floats(4),), (planted(floats(4), 12.5, 0),), (planted(floats(4), -12.5, 0),)])
def first_as_a_number(x: Tensor) -> Tensor:
    first, *_ = x.tolist()
    return x * 2 if round(first) > 10 else x


@devious(lambda: [(torch.tensor([2, 4, 6]),), (torch.tensor([2, 4, 7]),), (torch.tensor([1, 3, 9]),)])
def odd_sum(ids: Tensor) -> Tensor:
    return ids * -1 if int(ids.sum()) % 2 else ids


@devious(lambda: [(floats(3, 4), torch.ones(3, 4).bool()),
                  (floats(3, 4), planted(torch.ones(3, 4), 0.0, 0, 1, 2, 3).bool()),
                  (floats(3, 4), planted(torch.ones(3, 4), 0.0, 4, 5, 6, 7).bool())], branches=True)  # fmt: skip
def a_row_without_any(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask if mask.any(1).all() else x.cumsum(0)


class ActNorm(nn.Module):
    """Takes its scale from the first data that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        if not self.ready:
            self.scale = 1 / (x.std(0) + 1e-3)
            self.ready.fill_(True)
        return x * self.scale


devious(lambda: [(floats(5, 4),), (floats(5, 4, seed=3) * 7,), (floats(8, 4, seed=4) + 3,)], ROWS)(ActNorm)


class Tally(nn.Module):
    """Counts its calls in a buffer, and clips from the second on; each export and each run begin at the same count."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += int((x > 5).any())
        return x.clamp(-1, 1) if self.calls > 0 else x


devious(lambda: [(floats(5, 4),), (planted(floats(5, 4), 6.0, 3),)], ROWS, branches=True)(Tally)
