"""Loops over chunks, rows and time steps, as many rounds as the input has.

Every case is judged at sizes that the export never saw, with other data; docs/causes.md says what came of each cause.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.one_function import cases_of

LIBRARIES = ("torch",)
TOKENS = ((2, 6, 4), (3, 9, 4), (1, 1, 4), (2, 14, 4))
case = cases_of(__name__)


def chunk_by_chunk(x: Tensor) -> Tensor:
    """Four tokens at a time, each by itself, put together again."""
    done = []
    for start in range(0, x.shape[1], 4):
        done.append(F.gelu(x[:, start : start + 4]) * 2)
    return torch.cat(done, 1)


def chunks_that_matter(x: Tensor) -> Tensor:
    """The same with a softmax over each chunk."""
    done = []
    for start in range(0, x.shape[1], 4):
        done.append(x[:, start : start + 4].softmax(1))
    return torch.cat(done, 1)


def rows_apart(x: Tensor) -> Tensor:
    return torch.cat([row * 2 for row in x])


def rows_with_state(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    found = []
    for t in range(x.shape[1]):
        state = (state * 0.7 + x[:, t]).tanh()
        found.append(state)
    return torch.stack(found, 1)


def linear_recurrence(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    decay = x.sigmoid()
    found = []
    for t in range(x.shape[1]):
        state = decay[:, t] * state + x[:, t]
        found.append(state)
    return torch.stack(found, 1)


def written_step_by_step(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    state = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        state = state * 0.5 + x[:, t]
        out[:, t] = state
    return out


def backwards(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    found: list[Tensor] = []
    for t in reversed(range(x.shape[1])):
        state = (state + x[:, t]).tanh()
        found.insert(0, state)
    return torch.stack(found, 1)


class Steps(nn.Module):
    """A GRU cell over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 5)
        for token in x.unbind(1):
            state = self.cell(token, state)
        return state


CASES: dict[str, Callable[[], Case]] = {
    "chunk_by_chunk": case(chunk_by_chunk, sizes=TOKENS),
    "chunks_that_matter": case(chunks_that_matter, sizes=TOKENS),
    "rows_apart": case(rows_apart, sizes=TOKENS),
    "rows_with_state": case(rows_with_state, sizes=TOKENS),
    "linear_recurrence": case(linear_recurrence, sizes=TOKENS),
    "written_step_by_step": case(written_step_by_step, sizes=TOKENS),
    "backwards": case(backwards, sizes=TOKENS),
    "cells": case(Steps(), sizes=TOKENS),
}  # fmt: skip
