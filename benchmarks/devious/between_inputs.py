"""Branches on how two inputs of different shapes relate: a row among rows, shared elements, a permutation, a key."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, planted

IDS = torch.tensor([5, 9, 12, 3])
KEYS = floats(3, 4)


@devious(lambda: [(KEYS, floats(4, seed=7)), (KEYS, KEYS[1].clone()), (KEYS, KEYS[2].clone())], branches=True)
def query_among_the_keys(keys: Tensor, query: Tensor) -> Tensor:
    return keys.sum(0) if (keys == query).all(1).any() else query


@devious(lambda: [(floats(5), floats(3, seed=2)), (floats(5), planted(floats(3, seed=2), float(floats(5)[2]), 1))])
def shared_element(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 if torch.isin(x, y).any() else x + y.sum()


@devious(lambda: [(IDS, torch.tensor([1, 2, 8, 40])), (IDS, torch.tensor([12, 3, 9, 5])), (IDS, IDS)])
def permutation_of_the_other(a: Tensor, b: Tensor) -> Tensor:
    return a * 2 if torch.equal(a.sort().values, b.sort().values) else a - b


@devious(lambda: [(IDS, torch.tensor([4, 2, 1])), (IDS, torch.tensor([3, 2, 1])), (IDS, torch.tensor([5, 2, 3]))])
def begins_where_the_other_ends(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b[1:]]) if a[-1] == b[0] else torch.cat([a, b[:-1]]) + 1


@devious(
    lambda: [(floats(2, 3), floats(2, 3, seed=2)), (floats(2, 3), 10 - floats(2, 3)), (floats(2, 3), -floats(2, 3))]
)
def sums_to_ten_everywhere(x: Tensor, y: Tensor) -> Tensor:
    return x if torch.allclose(x + y, torch.tensor(10.0)) else x * y


@devious(
    lambda: [(IDS, torch.tensor([1, 2, 8, 40])), (IDS, torch.tensor([5, 9, 12, 40])), (IDS, torch.tensor([5, 9, 1, 2]))]
)
def three_in_common(a: Tensor, b: Tensor) -> Tensor:
    return a * 2 if a.eq(b).sum() == 3 else a + b


@devious(
    lambda: [(floats(4, 2), floats(3, 2, seed=2)), (floats(4, 2), floats(4, 2)[1:]), (floats(4, 2), floats(3, 2) + 0.3)]
)
def nearest_touches(a: Tensor, b: Tensor) -> Tensor:
    apart = torch.cdist(a, b)
    return a + 1 if apart.min() < 1e-4 else a * apart.mean()


@devious(lambda: [(floats(4, 3), torch.tensor(9)), (floats(4, 3), torch.tensor(4)), (floats(4, 3), torch.tensor(3))])
def told_the_number_of_rows(x: Tensor, n: Tensor) -> Tensor:
    return x * 2 if int(n) == x.shape[0] else x


@devious(
    lambda: [
        (floats(4, 3), floats(3, 5, seed=2)),
        (floats(4, 3), torch.zeros(3, 5)),
        (torch.eye(4, 3), torch.eye(3, 5)),
    ]
)
def product_is_diagonal(a: Tensor, b: Tensor) -> Tensor:
    p = a @ b
    return p.sum(1) if not (p - p.diagonal().diag_embed().new_zeros(p.shape).fill_diagonal_(1)).any() else p.mean(1)


@devious(lambda: [(IDS, IDS[:3] + 40), (IDS, torch.tensor([9, 12, 3])), (IDS, torch.tensor([5, 9, 12]))])
def tail_of_the_other(a: Tensor, b: Tensor) -> Tensor:
    return a * 3 if torch.equal(a[1:], b) else a


@devious(
    lambda: [
        (floats(5), torch.tensor(2)),
        (floats(5), floats(5).argmax()),
        (planted(floats(5), 9.0, 2), torch.tensor(2)),
    ]
)
def told_the_place(x: Tensor, place: Tensor) -> Tensor:
    return x * 2 if x.argmax() == place else x


@devious(
    lambda: [(floats(4), floats(4, seed=2).abs() + 5), (floats(4), floats(4)), (floats(4), floats(4) + 1e-3)],
    branches=True,
)
def inside_the_bounds(x: Tensor, bound: Tensor) -> Tensor:
    return x if (x.abs() < bound).all() else x.clamp(-1, 1)
