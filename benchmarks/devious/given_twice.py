"""Bytes and texts of a size, one tensor given twice, a mask of what a cache and new tokens have together."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)


def boxes(n: int, spread: float, seed: int = 3) -> tuple[Tensor, Tensor]:
    corner = floats(n, 2, seed=seed).abs() * spread
    return torch.cat([corner, corner + 1], 1), floats(n, seed=seed + 1).sigmoid()


@devious(lambda: [boxes(12, 3.0), boxes(90, 30.0), boxes(70, 60.0)], ({0: "n"}, {0: "n"}))
def best_fifty(found: Tensor, score: Tensor) -> Tensor:
    kept = torch.nonzero(score > 0.2).flatten()
    order = score[kept].argsort(descending=True)
    if len(kept) > 50:
        order = order[:50]
    return found[kept[order]]


@devious(lambda: [(torch.arange(7).repeat(2)[:12],), (torch.arange(40),), (torch.arange(33),)], ROWS)
def many_different_ids(ids: Tensor) -> Tensor:
    seen = torch.unique(ids)
    return seen * 2 if len(seen) > 32 else seen


@devious(sizes(5, 300, 256), ROWS)
def packed_size(x: Tensor) -> Tensor:
    return x + struct.pack("<H", x.shape[0])[1]


@devious(sizes(5, 300, 256), ROWS)
def bytes_of_the_size(x: Tensor) -> Tensor:
    return x + int(x.shape[0]).to_bytes(2, "big")[0]


@devious(sizes(5, 12, 130), ROWS)
def width_of_the_text(x: Tensor) -> Tensor:
    return x * len(f"{x.shape[0]}".rjust(2, "0"))


def cached(past: int, n: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    return floats(2, n, 4, seed=seed), floats(2, past, 4, seed=seed + 1), torch.ones(2, past + n, dtype=torch.long)


@devious(lambda: [cached(3, 2), cached(6, 4), cached(9, 1)],
         ({1: "n"}, {1: "p"}, {1: "p+n"}))  # fmt: skip
def mask_of_past_and_new(x: Tensor, past: Tensor, mask: Tensor) -> Tensor:
    keys = torch.cat([past, x], 1)
    score = (x @ keys.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4)
    if mask.shape[1] - past.shape[1] == 1:
        score = score * 2
    return score.softmax(-1) @ keys


@devious(lambda: [(q := floats(3, 5), q), (r := floats(6, 5), r)], ({0: "n"}, {0: "n"}))
def same_tensor_given_twice(q: Tensor, kv: Tensor) -> Tensor:
    q += 1
    return kv * 2


@devious(lambda: [(q := floats(3, 5), q), (r := floats(6, 5), r)], ({0: "n"}, {0: "n"}))
def self_attention_is_faster(q: Tensor, kv: Tensor) -> Tensor:
    return q.cumsum(0) if kv is q else q.cumsum(0) + kv
