"""Plain loops inside plain loops: each becomes a loop of the graph with another one in it, or is refused.

Each takes rows [n, 4]; the material of test_plain_loops.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.control_flow.loop_models import Looping, refused, right


@right
def distances_of_pairs(self: Looping, x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], x.shape[0])
    for i in range(x.shape[0]):
        for j in range(x.shape[0]):
            out[i, j] = (x[i] - x[j]).abs().sum()
    return out


@right
def one_list_of_pairs(self: Looping, x: Tensor) -> Tensor:
    pairs = []
    for one in x:
        for other in x:
            pairs.append(torch.cat([one, other.tanh()]))
    return torch.stack(pairs)


@right
def rows_of_lists(self: Looping, x: Tensor) -> Tensor:
    table = []
    for one in x:
        row = []
        for other in x:
            row.append((one * other).sum(0, keepdim=True))
        table.append(torch.cat(row))
    return torch.stack(table)


@right
def state_of_both(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    total, means = torch.zeros(4), []
    for i in range(x.shape[0]):
        inner = torch.zeros(4)
        for j in range(x.shape[0]):
            inner = torch.tanh(inner + x[j] * i)
            total = total + inner
        means.append(inner.mean())
    return total, torch.stack(means)


@right
def three_deep(self: Looping, x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for one in x:
        for other in x:
            for third in x:
                total = torch.tanh(total + one * other - third)
    return total


class _Decayed(nn.Module):
    def forward(self, rows: Tensor, start: Tensor) -> Tensor:
        for row in rows:
            start = start * 0.5 + row
        return start


@right
def a_module_with_a_loop(self: Looping, x: Tensor) -> Tensor:
    decayed = _Decayed()
    return torch.stack([decayed(x, row) for row in x])


@refused("a result of a single round is used after it")
def last_of_the_inner_rounds(self: Looping, x: Tensor) -> Tensor:
    for one in x:
        for other in x:
            product = one * other
    return product
