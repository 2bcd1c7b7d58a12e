"""Plain loops that update tensors in place: each becomes one loop of the graph, or is refused with its reason.

Each takes rows [n, 4]; the material of test_plain_loops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.control_flow.loop_models import Looping, refused, right


@right
def sums_in_place(self: Looping, x: Tensor) -> Tensor:
    total = x[0] * 2.0
    other_name = total
    for row in x:
        total += row
        total *= torch.tanh(total)
    return total + other_name


@right
def writes_rows(self: Looping, x: Tensor) -> tuple[Tensor, Tensor]:
    out, state = torch.zeros_like(x), torch.zeros(4)
    for i in range(x.shape[0]):
        state = torch.tanh(state + x[i])
        out[i] = state
    return out, state


@right
def writes_columns(self: Looping, x: Tensor) -> Tensor:
    out = x.t() * 1.0
    for i in range(x.shape[0]):
        out[:, i] = out[:, i - 1] * 0.5 + x[i]
    return out


@right
def adds_to_rows(self: Looping, x: Tensor) -> Tensor:
    out = x * 1.0
    for i in range(x.shape[0]):
        out[i] += out[i - 1] * 0.5
    return out


@right
def adds_to_a_row_by_a_name(self: Looping, x: Tensor) -> Tensor:
    out = x * 1.0
    for i in range(x.shape[0]):
        row = out[i]
        row += out[i - 1] * 0.5  # the row shows a part of `out`
    return out


@right
def adds_to_a_window_by_a_name(self: Looping, x: Tensor) -> Tensor:
    out = torch.zeros(4, x.shape[0] + 1)
    for i in range(x.shape[0]):
        window = out[:, i : i + 2]
        window += torch.outer(x[i], x[i - 1, :2])
    return out


@right
def writes_single_numbers(self: Looping, x: Tensor) -> Tensor:
    table = torch.zeros(x.shape[0], x.shape[0])
    for i in range(x.shape[0]):
        table[i, i] = x[i, 0]
        table[i, :] = table[i, :] + x[i, 1]
    return table


@right
def gathers_beside_the_number(self: Looping, x: Tensor) -> Tensor:
    tags = (x * 3).long()
    score = self.table[tags[0, 0]] * 1.0
    for i in range(x.shape[0]):
        score += self.table[tags[i], torch.arange(4)]
        score += x[i, tags[i]]
    return score


@right
def activates_in_place(self: Looping, x: Tensor) -> Tensor:
    state = torch.zeros(4)
    for row in x:
        state = torch.nn.functional.relu(state - 0.5 + row, inplace=True)
        state.mul_(0.5).add_(1)
    return state


@right
def updated_again_afterwards(self: Looping, x: Tensor) -> Tensor:
    total = x[0] * 1.0
    for row in x:
        total += row
    total += 1
    total[0] = 7.0
    return total


@refused("the tensor that it shows")
def view_from_before(self: Looping, x: Tensor) -> Tensor:
    total = x * 1.0
    first = total[0]
    for row in x:
        total += row
    return first * 2


@refused("depends on the number of rounds")
def one_tensor_many_times(self: Looping, x: Tensor) -> Tensor:
    outs, total = [], x[0] * 1.0
    for row in x:
        total += row
        outs.append(total)  # every entry is the same tensor, and has its last value
    return torch.stack(outs)


@refused("what was made outside this forward", "dynamo")
def updated_since_the_row_was_taken(self: Looping, x: Tensor) -> Tensor:
    out = x * 1.0
    for i in range(x.shape[0]):
        row = out[i]
        out[0] = 5.0
        row += 1
    return out


@refused("made outside this forward")
def writes_into_the_input(self: Looping, x: Tensor) -> Tensor:
    for i in range(x.shape[0]):
        x[i] += 1
    return x
