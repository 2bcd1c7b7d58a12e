"""Small models whose branches or loops are refused, each with what the error must say."""

from __future__ import annotations

import math

import torch
from torch import nn

from tests.control_flow.branch_cases import refused, up


@refused(up(3, 4) * 9, says=("halvings_counted", "the Python number n changes", "@onnxpatch.while_loop"))
class halvings_counted(nn.Module):
    def forward(self, x):
        n = 0
        while x.max() > 1:
            x = x * 0.5
            n += 1
        return x * n


@refused(
    up(3, 4),
    torch.tensor(3),
    says=("rounds_counted", "number of rounds depends on the input", "@onnxpatch.while_loop"),
    dynamic=({0: "rows"}, None),
)
class rounds_counted(nn.Module):
    def forward(self, x, n):
        i = 0
        while i < int(n):
            x = torch.tanh(x)
            i += 1
        return x


@refused(up(3, 4), says=("rows_until_ten", "the Python number n changes", "@onnxpatch.scan"))
class rows_until_ten(nn.Module):
    def forward(self, x):
        total, n = torch.zeros(4), 0
        for row in x:
            total = total + row
            n += 1  # noqa: SIM113
            if n == 10:
                break
        return total


@refused(up(3, 4), says=("rows_counted_by_a_list", "depends on the number of rounds", "@onnxpatch.each"))
class rows_counted_by_a_list(nn.Module):
    def forward(self, x):
        outs = [row * 2 for row in x]
        return torch.stack(outs) * (1.0 / len(outs))


@refused(up(3, 4), says=("decides_inside_a_loop", "branches inside it", "@onnxpatch.scan"))
class decides_inside_a_loop(nn.Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            if row.sum() > 1:
                total = total + row
        return total


@refused(up(3, 4), says=("writes_into_the_input", "a loop", "@onnxpatch.each"))
class writes_into_the_input(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for i in range(x.shape[0]):
            x[i] = out[i].softmax(0)  # writes into the input
        return out


@refused(up(3, 4), says=("first_row_again", "a single round", "@onnxpatch.each"))
class first_row_again(nn.Module):
    def forward(self, x):
        outs = [row * 2 for row in x]
        return outs[0]


@refused(up(2, 4), says=("coin", "random number"))
class coin(nn.Module):
    def forward(self, x):
        return x if torch.rand(()) > 0.5 else -x


@refused(up(2, 4), says=("too_many", "more than 8 paths", "max_paths"), max_paths=8)
class too_many(nn.Module):
    def forward(self, x):
        for column in range(4):
            if x[0, column] > 0.5:
                x = x + column
        return x


@refused(up(2, 4), says=("writes_a_buffer", "buffer", "clone"))
class writes_a_buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        if x.mean() > 0:
            self.count.add_(1)
        return x * 2


class assigns_a_buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        if x.mean() > 0:
            self.scale = x.mean()
        return x * 2


@refused(up(2, 4), says=("assigns_a_buffer", "set self.scale to different values"))
class reads_an_assigned_buffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = assigns_a_buffer()

    def forward(self, x):
        return self.inner(x) * self.inner.scale


@refused(up(2, 4), says=("other_structures", "same structure"))
class other_structures(nn.Module):
    def forward(self, x):
        return (x, x + 1) if x.sum() > 0 else {"only": x}


@refused(up(2, 4), says=("other_ranks", "dimensions"))
class other_ranks(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else x.mean(0)


@refused(up(4), says=("leaves_torch", "float"), dynamic=None)
class leaves_torch(nn.Module):
    def forward(self, x):
        return x * math.sqrt(x[0])


@refused(up(2, 4, 6), says=("symmetrised", "with an example"), dynamic=({1: "h", 2: "w"},))
class symmetrised(nn.Module):
    """The side runs on square maps alone, which the example is not."""

    def forward(self, x):
        if x.shape[1] == x.shape[2]:
            x = (x + x.transpose(1, 2)) / 2
        return x.relu()
