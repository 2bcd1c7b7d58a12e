"""Small models with loops whose number of rounds depends on the input."""

from __future__ import annotations

import math

import torch
from torch import nn

from tests.control_flow.branch_cases import ROWS, right, up


@right(up(3, 4) * 9, up(2, 4) * 0.1, up(5, 4) * 100)
class halves_until_small(nn.Module):
    def forward(self, x):
        while x.max() > 1:
            x = x * 0.5
        return x


@right(up(3, 4), up(7, 4), up(1, 4))
class rows_one_by_one(nn.Module):
    def forward(self, x):
        return torch.stack([row.sum() for row in x])


@right(up(3, 4), up(7, 4), up(1, 4))
class steps_over_a_size(nn.Module):
    def forward(self, x):
        total = torch.zeros(4)
        for i in range(x.shape[0]):
            total = total * 0.5 + x[i]
        return total


@right((up(3, 4), torch.tensor([1, 4, 2])), (up(5, 4), torch.tensor([4, 4, 1, 2, 3])), dynamic=(ROWS[0], ROWS[0]))
class last_of_each_row(nn.Module):
    def forward(self, x, lengths):
        return torch.stack([x[i, n - 1] for i, n in enumerate(lengths)])


@right(up(2, 3, 4), up(2, 7, 4), dynamic=({0: "rows", 1: "steps"},))
class cell_over_steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 6)

    def forward(self, x):
        h, outs = torch.zeros(x.size(0), 6), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outs.append(h)
        return torch.stack(outs, dim=1), h


class _Halves(nn.Module):
    """A module of its own, whose If gives (2, b, n): the 2 is the same on both sides."""

    def forward(self, x):
        if math.ceil(x.shape[1] / 2) > 3:
            return torch.stack([x[:, :3], x[:, -3:]])
        return torch.stack([x, -x])


@right(torch.rand(2, 4), torch.rand(3, 9), torch.rand(1, 1), torch.rand(2, 7), dynamic=({0: "b", 1: "n"},))
class rows_behind_an_if(nn.Module):
    def __init__(self):
        super().__init__()
        self.halves = _Halves()

    def forward(self, x):
        scales, total = [0.5, 2.0], 0
        for i, half in enumerate(self.halves(x)):
            total = total + half * scales[i]
        return total


@right(up(2, 6, 4), up(3, 9, 4), up(1, 3, 4), dynamic=({0: "rows", 1: "steps"},))
class windows_by_the_number(nn.Module):
    """Ranges of as many places in every round, from the loop's own number."""

    def forward(self, x):
        turned = torch.cat([x[:, i : i + 1] * 2 for i in reversed(range(x.shape[1]))], 1)
        around = torch.stack([x[:, i - 1 : i + 2].softmax(1) for i in range(1, x.shape[1] - 1)])
        pairs = torch.cat([x[:, 2 * i : (i + 1) * 2].cumsum(1) for i in range(x.shape[1] // 2)], 1)
        return turned, around, pairs


@right(up(2, 6, 4), up(3, 9, 4), up(1, 1, 4), dynamic=({0: "rows", 1: "steps"},))
class ranges_by_the_number(nn.Module):
    """Ranges of another length in every round."""

    def forward(self, x):
        so_far = torch.stack([x[:, : i + 1].mean(1) for i in range(x.shape[1])], 1)
        return so_far, torch.stack([x[:, max(0, i - 2) : i + 1].amax(1) for i in range(x.shape[1])], 1)


@right(up(2, 9, 4), up(3, 12, 4), up(1, 1, 4), dynamic=({0: "rows", 1: "steps"},))
class pieces_of_a_split(nn.Module):
    """Each piece by itself and after the one before; the last may be shorter."""

    def forward(self, x):
        state = torch.zeros(x.shape[0], 4)
        for piece in x.split(4, dim=1):
            state = torch.tanh(state + piece.softmax(1).amax(1))
        pieces = torch.stack([piece.mean(1) for piece in torch.split(x, 4, 1)], 1)
        return state, pieces, torch.stack([x[:, i : i + 5].sum(1) for i in range(0, x.shape[1], 5)])
