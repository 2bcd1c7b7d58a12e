"""What Python asks a number or a tensor while a model runs: one small model for each question."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXAMPLE = (torch.tensor([[0.5, 2.0, 1.0, 3.0, 0.0, 1.5], [1.0, 0.0, 2.5, 0.5, 1.0, 4.0]]),)


class Asks(nn.Module):
    """A model with what the questions are about: a flag, a table, a list of layers and one of numbers."""

    def __init__(self, question: Callable[[Asks, Any], Any]) -> None:
        super().__init__()
        self.question = question
        self.flag = nn.Buffer(torch.tensor(True))
        self.count = nn.Buffer(torch.tensor(2))
        self.table = nn.Parameter(torch.randn(1, 6))
        self.layers = nn.ModuleList([nn.Identity(), nn.ReLU(), nn.Tanh()])
        self.numbers = [1.0, 2.0, 3.0, 4.0]

    def forward(self, x: Tensor) -> Tensor:
        return self.question(self, x)


# ---- bool() of a condition on sizes


def larger_size(m, x):
    if x.shape[1] > 512:
        return x * 2
    return x + 1


def size_not_zero(m, x):
    if x.shape[1] - 6:
        return x * 2
    return x + 1


def pads(m, x):
    missing = (4 - x.shape[1] % 4) % 4
    if missing > 0:
        x = F.pad(x, (0, missing))
    return x.sum(1)


def pads_by_own_amount(m, x):
    rest = x.shape[1] % 4
    if rest > 0:
        missing = 4 - rest
        x = F.pad(x, (0, missing))
    return x.sum(1)


def returns_unpadded(m, x):
    missing = (3 - x.shape[1] % 3) % 3
    if missing == 0:
        return x
    return F.pad(x, (0, missing))


def crops(m, x):
    if x.shape[1] > 4:
        x = x[:, :4]
    return x.cumsum(1)


def crops_back(m, x):
    n = x.shape[1]
    padded = F.pad(x, (0, (4 - n % 4) % 4))
    whole = padded.shape[1]
    y = padded.reshape(x.shape[0], -1, 4).softmax(2).flatten(1)
    if whole != n:
        y = y[:, :n]
    return y


def chooses_an_element(m, x):
    pads = [0, 0]
    if x.shape[1] != x.shape[0]:
        pads[1] = 1
    return F.pad(x, pads).sum(1)


def chooses_a_name(m, x):
    n, extra = x.shape[1], 0
    if n <= 8:
        extra = 8 - n + 1
        x = F.pad(x, (0, extra))
    return x.cumsum(1) + extra


def skips_a_resize(m, x):
    n = x.shape[1]
    if n == m.table.shape[1]:
        return x + m.table
    return x + F.interpolate(m.table[None], size=n, mode="linear")[0]


def flags_a_resize(m, x):
    upsample_size = False
    if x.shape[1] % 4 != 0:
        upsample_size = True
    size, factor = (x.shape[1:], None) if upsample_size else (None, 1.0)
    return F.interpolate(x[None], size=size, scale_factor=factor, mode="nearest")


def asserts_a_size(m, x):
    assert x.shape[1] > 2
    return x * 2


# ---- bool() of data


def positive_sum(m, x):
    if x.sum() > 0:
        return x * 2
    return -x


def mask_dropped(m, x):
    hidden = x == 7
    if not hidden.any():
        hidden = None
    return x if hidden is None else x.masked_fill(hidden, 0.0)


def mask_used(m, x):
    hidden = x == 7
    if hidden.any():
        x = torch.where(hidden, x * 2, x)
    return x.cumsum(1)


def asserts_data(m, x):
    assert (x >= 0).all()
    return x * 2


def stored_flag(m, x):
    if m.flag:
        return x * 2
    return -x


def asserts_a_flag(m, x):
    assert m.flag
    return x * 2


def equal_tensors(m, x):
    return x * 2 if torch.equal(x, x.relu()) else -x


# ---- int(), float(), len(), max(), round(), range(), list[i], item(), tolist()


def int_of_size(m, x):
    return x + torch.ones(int(x.shape[1] * 1.0))


def int_of_data(m, x):
    return x + int(x.sum())


def int_of_buffer(m, x):
    return x + int(m.count)


def float_of_size(m, x):
    return x / float(x.shape[1] // 2)


def float_of_data(m, x):
    return x / float(x.sum())


def root_of_data(m, x):
    return x / math.sqrt(x.sum())


def length_of_tensor(m, x):
    return x * len(x)


def larger_of_sizes(m, x):
    return x * max(x.shape[1], x.shape[0], 3)


def largest_of_tensor(m, x):
    return x * max(x[0])


def rounded_size(m, x):
    return x * round(x.shape[1] * 0.4)


def range_of_size(m, x):
    y = x[:, 0]
    for i in range(x.shape[1]):
        y = y * 0.5 + x[:, i]
    return y


def range_of_one_step(m, x):
    n = x.shape[1]
    return torch.cat([x[:, at : at + n].softmax(1) for at in range(0, n, n)], 1)


def layer_by_size(m, x):
    return x * m.numbers[x.shape[1] // 4]


def layer_by_data(m, x):
    return m.layers[x.argmax() // 6](x)


def number_by_data(m, x):
    return x * m.numbers[int(x.argmax()) // 6]


def item_of_data(m, x):
    return x * x.sum().item()


def item_of_sizes(m, x):
    return x * torch.arange(x.shape[1]).amax().item()


def item_of_buffer(m, x):
    return torch.cat([x] * m.count.item())


def list_of_sizes(m, x):
    rows, columns = torch.tensor(x.shape).tolist()
    return x * (rows + columns)


def list_of_data(m, x):
    first, second = x.sum(1).round().long()[:2].tolist()
    return x * first + second


def rows_one_by_one(m, x):
    total = x[0] * 0
    for row in x:
        total = total * 0.5 + row
    return total


QUESTIONS = [
    value
    for value in list(globals().values())
    if callable(value) and getattr(value, "__module__", "") == __name__ and value is not Asks
]
