"""Plain loops over rows: those that become one loop of the graph, and those that three rounds do not tell from others.

Each takes rows [n, 4]; the material of test_plain_loops.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

RIGHT: dict[str, Callable[[], nn.Module]] = {}
REFUSED: dict[str, tuple[Callable[[], nn.Module], str, str]] = {}
CALLS = 0


class Looping(nn.Module):
    """What the loops below use of their module."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.scales = [2.0] * 5
        self.table = nn.Parameter(torch.rand(5, 4), requires_grad=False)
        self.decay = nn.Parameter(torch.rand(4))


def _model(forward: Callable[[Any, Tensor], Any]) -> Callable[[], nn.Module]:
    cls = type(forward.__name__, (Looping,), {"forward": forward, "__module__": forward.__module__})
    return lambda: cls().eval()


def right(forward: Callable[[Any, Tensor], Any]) -> None:
    RIGHT[forward.__name__] = _model(forward)


def refused(says: str, exporter: str = "trace") -> Callable[[Callable[[Any, Tensor], Any]], None]:
    def register(forward: Callable[[Any, Tensor], Any]) -> None:
        REFUSED[forward.__name__] = _model(forward), says, exporter

    return register


# ---- right for every number of rows


@right
def counter_in_arithmetic(self: Looping, x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + x[i] * self.table[i % 5] * 0.5**i
    return total


@right
def filter_of_patched_functions(self: Looping, x: Tensor) -> Tensor:
    # No operator of ONNX is an inverse or an inverse error function: patches stand in for both.
    state, out = torch.zeros(4), []
    for row in x:
        gain = torch.linalg.inv(torch.eye(2) + torch.outer(row[:2], row[:2]))
        state = torch.erfinv(0.5 * torch.tanh(state + row)) * (gain @ row[2:]).sum()
        out.append(state)
    return torch.stack(out)


@right
def selective_scan(self: Looping, x: Tensor) -> Tensor:
    # A backward of the product needs the number of rows.
    # opt_einsum, where it is installed, asks the sizes of three.
    decay = torch.exp(-torch.einsum("bn,cn,n->bcn", x, x, self.decay))
    state, outs = torch.zeros_like(x), []
    for i in range(x.shape[0]):
        state = decay[:, i] * state + x
        outs.append(torch.einsum("bn,bn->b", state, decay[:, i]))
    return torch.stack(outs)


@right
def numbered_rows(self: Looping, x: Tensor) -> Tensor:
    return torch.stack([row * i for i, row in enumerate(x, 1)])


@right
def rows_side_by_side(self: Looping, x: Tensor) -> Tensor:
    total, outs = torch.zeros(4), []
    for row, other, more in zip(x, x.cos().unbind(), torch.cat([x, x]), strict=False):
        total = total * 0.5 + row * other - more
        outs.append(total)
    return torch.stack(outs)


@right
def rounds_by_a_logarithm(self: Looping, x: Tensor) -> Tensor:
    for number in range(int(2 * math.log(x.shape[0] + 1))):
        x = torch.tanh(x + x.roll(1, 1)) * number
    return x


@right
def rows_by_index(self: Looping, x: Tensor) -> Tensor:
    # As PyTorch's own example of an LSTM takes its inputs.
    rows, total, outs = x.unbind(), torch.zeros(4), []
    for i in range(len(rows)):
        total = total * 0.5 + rows[i]
        outs += [total]
    return torch.stack(outs) + torch.stack(rows[::-1]) * rows[0] - rows[-1]


@right
def a_list_that_a_loop_has_filled(self: Looping, x: Tensor) -> Tensor:
    total, outs, best = torch.zeros(4), [], []
    for row in x:
        total = total * 0.5 + row
        outs.append(total)
    later = torch.ones(4)
    for out in reversed(outs):
        later = later * 0.5 - out.tanh()
        best.insert(0, later)
    both = torch.zeros(4)
    for one, other in zip(best, outs, strict=True):
        both = both * 0.5 + one * other
    numbered = torch.stack([one * number for number, one in enumerate(outs)])
    return torch.stack(best, 1).mT + both + numbered


@right
def backwards(self: Looping, x: Tensor) -> Tensor:
    total, outs = torch.zeros(4), []
    for i in range(x.shape[0] - 1, -1, -1):
        total = total * 0.5 + x[i]
        outs.append(total)
    return torch.stack(outs[::-1], 1)


@right
def unbound_columns(self: Looping, x: Tensor) -> Tensor:
    total, outs = torch.zeros(4), []
    for column in x.t().unbind(1):
        total = (total * 0.5 + column).tanh()
        outs.append(total)
    return torch.stack(outs, 1)


@right
def reversed_numbers(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    total, outs = torch.zeros(4), []
    for i in reversed(range(x.shape[0])):
        total = total * 0.5 + x[i]
        outs.insert(0, total[:2])
    return torch.cat(outs), outs[0]


@right
def row_before(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    before, outs = torch.zeros(4), []
    for row in x:
        outs.append(row - before)
        before = row
    return torch.stack(outs), before


@right
def last_row_after_the_loop(self: Looping, x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for row in x:
        total = total + row
    return total + row * 3


@right
def state_in_a_tuple(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    state, outs = (torch.zeros(4), torch.zeros(4)), []
    for row in x:
        h, c = state
        assert len(state) == 2
        state = torch.tanh(c) + h * 0.1, c * 0.5 + row
        outs.append(state)
    return torch.stack([h for h, _ in outs]), state[1]


@right
def number_before_the_loop(self: Looping, x: Tensor) -> Tensor:
    total = 0
    for row in x:
        total = total + row.sum()
    return total * torch.ones(2)


@right
def generator_that_a_list_takes(self: Looping, x: Tensor) -> Tensor:
    return torch.stack(list(row * 2 for row in x))


@right
def rows_written(self: Looping, x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = x[i].softmax(0)
    return out * 2


@right
def columns_written_from_the_one_before(self: Looping, x: Tensor) -> Tensor:
    x = x.t()
    out = torch.zeros_like(x)
    out[:, 0] = x[:, 0]
    for t in range(x.shape[1]):
        out[:, t] = out[:, t - 1] * 0.5 + x[:, t]
    return out


@right
def places_written(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    order = x.argsort(1)
    ranks, numbers, marks = torch.zeros_like(order), torch.arange(4), torch.zeros(x.shape[0], 2, 4)
    for i in range(order.shape[0]):
        ranks[i, order[i, :]] = numbers
        marks[i, 1, order[i] > 1] = 3.0
    return ranks, marks


@right
def beginnings_written(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    lengths = x.argmax(1) + 1
    mask, part = torch.zeros(x.shape[0], 4), torch.full((x.shape[0], 2, 4), -1)
    for i in range(x.shape[0]):
        mask[i, : lengths[i]] = 1
        part[i, -1, 1:3] = x[i, :2]
    return mask, part


@right
def updated_in_place(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    total, out = torch.zeros(4), x.clone()
    same = total
    for i in range(x.shape[0]):
        total += x[i].tanh()
        total.mul_(0.5)
        out[i] += total
    return same, out


# ---- refused: a few rounds agree where a later one would not


@refused("branches inside it")
def counter_compared(self: Looping, x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        if i == 5:
            total = total + 100
        total = total + x[i]
    return total


@refused("self.rounds changes")
def counted_by_an_attribute(self: Looping, x: Tensor) -> Tensor:
    self.rounds, total = 0, torch.zeros(4)
    for row in x:
        self.rounds += 1
        total = total + row * (9.0 if self.rounds == 6 else 2.0)
    return total


@refused("count[0] changes")
def counted_in_a_list(self: Looping, x: Tensor) -> Tensor:
    count, total = [0], torch.zeros(4)
    for row in x:
        count[0] += 1
        total = total + row * (9.0 if count[0] == 6 else 2.0)
    return total


@refused("CALLS changes")
def counted_by_a_global(self: Looping, x: Tensor) -> Tensor:
    global CALLS
    total = torch.zeros(4)
    for row in x:
        CALLS += 1
        total = total + row * (9.0 if CALLS % 6 == 5 else 2.0)
    return total


def _counting() -> Callable[[], float]:
    rounds = 0

    def scale() -> float:
        nonlocal rounds
        rounds += 1
        return 9.0 if rounds == 6 else 2.0

    return scale


@refused("scale")
def counted_by_a_closure(self: Looping, x: Tensor) -> Tensor:
    scale, total = _counting(), torch.zeros(4)
    for row in x:
        total = total + row * scale()
    return total


@refused("scales")
def iterator_beside_the_rows(self: Looping, x: Tensor) -> Tensor:
    scales, total = iter([2.0] * 6 + [5.0] * 50), torch.zeros(4)
    for row in x:
        total = total + row * next(scales)
    return total


def _scales() -> Iterator[float]:
    yield from [2.0] * 6
    yield from itertools.repeat(5.0)


@refused("scales")
def generator_beside_the_rows(self: Looping, x: Tensor) -> Tensor:
    scales, total = _scales(), torch.zeros(4)
    for row in x:
        total = total + row * next(scales)
    return total


@refused("len() of a list")
def length_asked_for(self: Looping, x: Tensor) -> Tensor:
    outs: list[Tensor] = []
    for row in x:
        if len(outs) >= 6:
            break
        outs.append(row * 2)
    return torch.stack(outs)


@refused("len() of a list")
def length_asked_for_afterwards(self: Looping, x: Tensor) -> Tensor:
    outs = [row * 2 for row in x]
    return torch.stack(outs) if len(outs) > 5 else torch.stack(outs) * 2


@refused("recent")
def last_five(self: Looping, x: Tensor) -> Tensor:
    recent: list[Tensor] = []
    for row in x:
        recent = [*recent, row][-5:]
    return torch.stack(recent).sum(0)


@refused("recent")
def last_five_of_a_deque(self: Looping, x: Tensor) -> Tensor:
    recent: collections.deque[Tensor] = collections.deque(maxlen=5)
    for row in x:
        recent.append(row)
    return torch.stack(list(recent)).sum(0)


@right
def first_five_afterwards(self: Looping, x: Tensor) -> Tensor:
    outs = []
    for row in x:
        outs.append(row * 2)
    return torch.stack(outs[:5])


@right
def first_put_in_at_the_start(self: Looping, x: Tensor) -> Tensor:
    outs: list[Tensor] = []
    for row in x:
        outs.insert(0, row * 2)
    return outs[-1]


@right
def rows_of_a_filled_list(self: Looping, x: Tensor) -> Tensor:
    outs = []
    for row in x:
        outs.append(row * self.decay)
    total, sums = torch.zeros(4), []
    for out in outs:
        total = total * 0.5 + out
        sums.append(total)
    return torch.stack(sums)


@right
def a_filled_list_by_index(self: Looping, x: Tensor) -> Tensor:
    outs, back, h = [], [], torch.zeros(4)
    for row in x:
        outs.append(row * self.decay)
    for i in range(len(outs)):
        h = h * 0.5 + outs[len(outs) - 1 - i]
        back.append(h)
    return torch.stack(back) + outs[0]


@right
def a_list_with_a_first_entry(self: Looping, x: Tensor) -> Tensor:
    outs = [torch.zeros(4)]
    for row in x:
        outs.append(outs[-1] * 0.5 + row)
    return torch.stack(outs[1:]) + outs[-1] + outs[0]


@refused("a slice takes a part of outs")
def those_behind_the_tenth(self: Looping, x: Tensor) -> Tensor:
    outs: list[Tensor] = []
    total = torch.zeros(4)
    for row in x:
        outs.append(row * 2)
        if outs[10:]:
            total = total + 1
        total = total + row
    return total


@refused("waiting")
def five_rounds_late(self: Looping, x: Tensor) -> Tensor:
    waiting, total = [torch.zeros(4)] * 5, torch.zeros(4)
    for row in x:
        waiting = [*waiting[1:], row]
        total = total + waiting[0]
    return total


@refused("one round to the next")
def exchanged(self: Looping, x: Tensor) -> Tensor:
    a, b = torch.zeros(4), torch.ones(4)
    for _row in x:
        a, b = b, a
    return a


@refused("may stop before the last")
def beside_a_shorter_list(self: Looping, x: Tensor) -> Tensor:
    return torch.stack([row * scale for row, scale in zip(x, self.scales, strict=False)])


@refused("may stop before the last")
def first_five(self: Looping, x: Tensor) -> Tensor:
    return torch.stack([row * 2 for row in itertools.islice(x, 5)])


@refused("may stop before the last")
def generator_beside_a_shorter_list(self: Looping, x: Tensor) -> Tensor:
    doubled = (row * 2 for row in x)
    return torch.stack([row * scale for row, scale in zip(doubled, self.scales, strict=False)])


@refused("used as a key")
def counter_looked_up(self: Looping, x: Tensor) -> Tensor:
    total, extra = torch.zeros(4), {5: 100.0}
    for i in range(x.shape[0]):
        total = total + x[i] + extra.get(i, 0.0)
    return total


@refused("used as text")
def counter_as_text(self: Looping, x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for i in range(x.shape[0]):
        total = total + x[i] * (9.0 if f"{i}" == "5" else 2.0)
    return total


@refused("shape or dtype", exporter="dynamo")
def grown_by_cat(self: Looping, x: Tensor) -> Tensor:
    rows = torch.zeros(1, 4)
    for row in x:
        rows = torch.cat([rows, rows.mean(0, keepdim=True) + row])
    return rows
