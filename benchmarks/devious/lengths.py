"""Whole numbers that mean a size: eager refuses another size unless they move with it."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.devious.kinds import Args, devious, floats


def steps(*pairs: tuple[int, tuple[int, ...]]) -> list[Args]:
    return [(floats(len(each), n, 4, seed=n), torch.tensor(each)) for n, each in pairs]


STEPS = lambda: steps((20, (20, 13)), (25, (25, 4)), (7, (7, 7)), (3, (3, 1)), (12, (5, 12, 9)))  # noqa: E731


@devious(STEPS, ({0: "b", 1: "n"}, {0: "b"}))
def mask_from_the_longest(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
    return x * mask[..., None]


@devious(STEPS, ({0: "b", 1: "n"}, {0: "b"}))
def cut_at_the_longest(x: Tensor, lengths: Tensor) -> Tensor:
    return x[:, : lengths.max().item()].cumsum(1)


def packed(*ends: tuple[int, ...]) -> list[Args]:
    return [(floats(end[-1], 2, seed=end[-1]), torch.tensor(end)) for end in ends]


@devious(lambda: packed((0, 5, 12, 20), (0, 3, 9, 11), (0, 8, 9, 33)), ({0: "t"}, None))
def packed_rows(x: Tensor, ends: Tensor) -> Tensor:
    assert int(ends[-1]) == x.shape[0], "the last end is the number of rows"
    return torch.stack([x[int(a) : int(b)].sum(0) for a, b in itertools.pairwise(ends)])


@devious(lambda: [(floats(n, 2), torch.tensor(p)) for n, p in ((9, (2, 3, 4)), (12, (2, 3, 7)))], ({0: "t"}, None))
def parts(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([part.mean(0) for part in x.split(lengths.tolist())])


@devious(
    lambda: [(floats(2, n, 3, seed=n), torch.arange(n)[None].repeat(2, 1)) for n in (6, 4, 11)],
    ({1: "n"}, {1: "n"}),
)
def positions(x: Tensor, place: Tensor) -> Tensor:
    table = torch.arange(int(place.max()) + 1).sin()
    return x + table[place][..., None]


@devious(
    lambda: [(floats(2, n, 3, seed=n), (torch.arange(n)[None] < torch.tensor([[n], [k]])).long())
             for n, k in ((6, 4), (9, 2), (3, 3))],
    ({1: "n"}, {1: "n"}),
)  # fmt: skip
def mask_that_counts(x: Tensor, mask: Tensor) -> Tensor:
    longest = int(mask.sum(1).max())
    return x[:, :longest] * mask[:, :longest, None]


@devious(lambda: [(floats(2, n, 3, seed=n), torch.tensor([n - 1, k])) for n, k in ((8, 3), (5, 0), (13, 12))],
         ({1: "n"}, None))  # fmt: skip
def last_steps(x: Tensor, last: Tensor) -> Tensor:
    return x[torch.arange(2), last] + x[:, : int(last.max()) + 1].sum(1)


@devious(lambda: [(floats(n, 3, seed=n), torch.tensor(n)) for n in (10, 4, 17)], ({0: "n"}, None))
def told_the_size(x: Tensor, count: Tensor) -> Tensor:
    return x + torch.arange(count.item())[:, None]


@devious(lambda: [(floats(2 * n, 3, seed=n), torch.tensor([n, n])) for n in (4, 6, 3)], ({0: "t"}, None))
def padded_parts(x: Tensor, lengths: Tensor) -> Tensor:
    return pad_sequence(list(x.split(lengths.tolist())), batch_first=True)


@devious(lambda: [(floats(2, n), torch.tensor([[n, n + 1]])) for n in (6, 9, 4)], ({1: "n"}, None))
def beyond_the_size(x: Tensor, bounds: Tensor) -> Tensor:
    assert int(bounds[0, 1]) == x.shape[1] + 1, "one more than there are"
    return torch.cat([x, x[:, :1]], 1) * torch.arange(int(bounds[0, 1]))
