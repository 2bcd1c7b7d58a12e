"""Branches on data that is compared with an exact constant: no sign, scale or shift of other data reaches them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import Args, devious, floats, planted

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])


def around(value: float, *places: int) -> list[Args]:
    x = floats(3, 4)
    return [(x,), (planted(x, value, *places),), (planted(floats(3, 4, seed=5), value, *places),)]


@devious(lambda: around(7.0, 5), ROWS, branches=True)
def one_seven(x: Tensor) -> Tensor:
    return x * 2 if (x == 7).any() else x


@devious(lambda: [*around(0.0, 1, 2, 9), (planted(floats(3, 4), 0.0, 1),)], ROWS, branches=True)
def three_zeros(x: Tensor) -> Tensor:
    return x - 1 if (x == 0).sum() == 3 else x


@devious(lambda: [(floats(2, 3), floats(2, 3, seed=2)), (floats(2, 3), floats(2, 3))], branches=True)
def equal_inputs(x: Tensor, y: Tensor) -> Tensor:
    return x + y if torch.equal(x, y) else x - y


@devious(lambda: [(floats(4), floats(4, seed=2)), (floats(4), floats(4) + 1e-9)])
def close_inputs(x: Tensor, y: Tensor) -> Tensor:
    return x * 3 if torch.allclose(x, y) else x + y


@devious(lambda: [(floats(2, 3), floats(2, 3, seed=2)), (floats(2, 3), floats(2, 3))])
def all_the_same(x: Tensor, y: Tensor) -> Tensor:
    return x * 0 if (x == y).all() else x - y


@devious(lambda: [(IDS,), (planted(IDS, 101, 3),), (planted(IDS, 101, 0, 4),)], branches=True)
def special_id(ids: Tensor) -> Tensor:
    return ids * 2 if (ids == 101).any() else ids + 1


class EndOfText(nn.Module):
    """Stops when every row has its end."""

    def __init__(self) -> None:
        super().__init__()
        self.eos = 50256
        self.table = nn.Embedding(50257, 2)

    def forward(self, ids: Tensor) -> Tensor:
        told = self.table(ids)
        return told.mean(1) if (ids == self.eos).any(1).all() else told.sum(1)


devious(lambda: [(IDS,), (planted(IDS, 50256, 1, 6),), (planted(IDS, 50256, 1),)], ({0: "b", 1: "n"},))(EndOfText)


@devious(lambda: [(IDS,), (planted(IDS, 42, 0),)])
def first_id(ids: Tensor) -> Tensor:
    return ids.flip(-1) if int(ids[0, 0]) == 42 else ids


@devious(lambda: [(IDS,), (planted(IDS, 0, 0, 4),)], ({0: "b"},))
def starts_with_padding(ids: Tensor) -> Tensor:
    return ids[:, 1:] * 2 if (ids[:, 0] == 0).all() else ids[:, 1:]


@devious(lambda: [(floats(5),), (torch.full((5,), 2.0),)], branches=True)
def sums_to_ten(x: Tensor) -> Tensor:
    return x + 5 if x.sum().item() == 10.0 else x


@devious(lambda: [(floats(2, 3),), (torch.full((2, 3), 0.5),)])
def all_one_half(x: Tensor) -> Tensor:
    return -x if (x == 0.5).all() else x


@devious(lambda: [(floats(2, 3),), (torch.full((2, 3), -3.25),)])
def constant_input(x: Tensor) -> Tensor:
    return x / x if x.max() == x.min() else x


@devious(lambda: [(IDS,), (torch.full_like(IDS, 4),)])
def a_single_kind(ids: Tensor) -> Tensor:
    return ids * 10 if ids.unique().numel() == 1 else ids


@devious(lambda: [around(3.0, 2)[0], (planted(planted(floats(3, 4), 3.0, 2), 4.0, 7),)])
def three_and_four(x: Tensor) -> Tensor:
    return x.abs() if bool((x == 3).any()) and bool((x == 4).any()) else x


@devious(lambda: [(floats(6),), (planted(floats(6), -1.0, 0),)])
def sentinel_at_the_start(x: Tensor) -> Tensor:
    return x[1:] * 2 if x[0] == -1 else x[1:]


@devious(lambda: [(torch.tensor([0, 1, 1, 0, 1]),), (torch.tensor([0, 1, 0, 0, 1]),)])
def exactly_two_flags(flags: Tensor) -> Tensor:
    return flags + 1 if flags.sum() == 2 else flags


@devious(lambda: [(IDS,), (planted(IDS, 1000, 5),)], branches=True)
def out_of_the_table(ids: Tensor) -> Tensor:
    return ids.clamp(max=10) if (ids > 999).any() else ids


@devious(lambda: [(floats(2, 4),), (torch.tensor([[0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),)])
def unit_length(x: Tensor) -> Tensor:
    return x * 100 if torch.isclose(x.norm(), torch.tensor(1.0)) else x


@devious(lambda: [(floats(4), torch.tensor(2)), (floats(4), torch.tensor(17))])
def mode_number(x: Tensor, mode: Tensor) -> Tensor:
    return x.exp() if mode.item() == 17 else x


@devious(lambda: [(floats(3, 2),), (planted(floats(3, 2), 255.0, 0, 1, 2, 3, 4, 5),)])
def saturated(x: Tensor) -> Tensor:
    return x / 255 if not (x != 255).any() else x
