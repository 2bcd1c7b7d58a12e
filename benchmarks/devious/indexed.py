"""Advanced indexing: places that are not side by side, masks beside places, negative and clamped ones, ends beyond."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


def placed(*rows: list[int]) -> list[tuple[Tensor, Tensor]]:
    return [(floats(5, 4, 3, seed=sum(row)), torch.tensor(row)) for row in rows]


@devious(lambda: placed([0, 2], [-1, -4], [3, 3]))
def not_side_by_side(x: Tensor, places: Tensor) -> Tensor:
    return x[places, :, 0] + x[places, :, places.clamp(0, 2)] + x[1, places][:, None, 0]


@devious(lambda: placed([0, 2, 1], [-1, -4, 0], [3, 3, 3]), (None, {0: "k"}))
def around_a_new_axis(x: Tensor, places: Tensor) -> Tensor:
    return x[:, None, places].sum((0, 1)) + x[places[:, None], places][:, 0] + x[..., places.fmod(3), None].sum()


@devious(
    lambda: [(floats(5, 4), torch.tensor(m)) for m in ([1, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0] * 5)]
)
def mask_beside_a_place(x: Tensor, m: Tensor) -> Tensor:
    return x[m.bool(), -1].sum() + x[m.bool()][:, 1:].sum(0) + (~m.bool()).nonzero().sum()


@devious(sizes(6, 1, 2, 3, 5, 12), ROWS)
def ends_beyond(x: Tensor) -> Tensor:
    return x[-4:].sum(0) + x[:-5].sum(0) + x[2:100].sum(0) + x[-100:2].sum(0) + x[3:1].sum(0) + x[::4].sum(0)


@devious(sizes(6, 1, 2, 3, 5, 12), ROWS)
def clamped_neighbours(x: Tensor) -> Tensor:
    place = torch.arange(x.shape[0])
    return x[(place + 2).clamp(max=x.shape[0] - 1)] - x[(place - 3).clamp(min=0)] + x[place - 1] + x[-place]


@devious(lambda: [(floats(5, 4), torch.tensor(r)) for r in ([0, 19], [-1, -20], [7, 7])])
def taken_from_all(x: Tensor, places: Tensor) -> Tensor:
    return x.take(places) + torch.take_along_dim(x, places.abs().fmod(5)[:, None], 0).sum(1) + x.flatten()[places]


@devious(lambda: [(torch.tensor(r),) for r in ([[1, 2, 0]], [[0, 0, 0]], [[3, 0, 3], [1, 1, 1]])], ({0: "n"},))
def bags_with_padding(ids: Tensor) -> Tensor:
    weight = floats(4, 3)
    return F.embedding_bag(ids, weight, mode="mean", padding_idx=0) + F.embedding(ids, weight, padding_idx=0).sum(1)


@devious(
    lambda: [(floats(4, 5), torch.tensor(r)) for r in ([1, 3, 0, 2], [4, 4, 4, 4], [-100, 1, 2, -100], [-100] * 4)]
)
def losses_that_ignore(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target, ignore_index=-100, reduction="sum") + F.cross_entropy(
        x, target.clamp(0), label_smoothing=0.1
    )


@devious(lambda: [(floats(5, 3), torch.tensor(r)) for r in ([0, 1, 1, 2, 0], [2, 2, 2, 2, 2], [1, 0, 1, 0, 1])])
def gathered_by_group(x: Tensor, group: Tensor) -> Tensor:
    total = torch.zeros(3, 3).index_add(dim=0, index=group, source=x)
    largest = torch.zeros(3, 3).scatter_reduce(0, group[:, None].expand(-1, 3), x, "amax", include_self=False)
    return total + largest + torch.bincount(group, minlength=3)[:, None]


@devious(lambda: [(floats(3, 6), torch.tensor(k)) for k in (2, 1, 6)])
def as_many_as_told(x: Tensor, k: Tensor) -> Tensor:
    return x.topk(int(k), dim=1).values.sum(1) + x.kthvalue(int(k), 1).values


@devious(sizes(6, 1, 2, 3, 9), ROWS)
def corners(x: Tensor) -> Tensor:
    n = x.shape[0]
    return torch.stack([x[0], x[-1], x[n // 2], x[-(n // 2) - 1], x[(n - 1) // 2]]) + x[n - 1 : n]
