"""Kinds of numbers: tensors without dimensions that promote, bytes that wrap, negative quotients, bits, shifts."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.devious.kinds import devious, floats

ROWS = ({0: "n"},)
WHOLE = lambda: [(torch.tensor(r),) for r in ([7, 9, 4], [-7, -9, -1, 0], [2**31, -(2**31) - 1], [5])]  # noqa: E731
BYTES = lambda: [(torch.tensor(r, dtype=torch.uint8),) for r in ([3, 40, 9], [200, 255, 0, 128], [1])]  # noqa: E731


@devious(WHOLE, ROWS)
def without_dimensions(ids: Tensor) -> tuple[Tensor, ...]:
    half = torch.tensor(0.5, dtype=torch.float64)
    return ids * half, ids.int() + torch.tensor(3), ids.float() * half, ids.sum() * 0.5, ids[0] + torch.tensor(1.5)


@devious(WHOLE, ROWS)
def quotients(ids: Tensor) -> tuple[Tensor, ...]:
    return ids // 4, ids % 4, ids % -4, ids // -4, torch.div(ids, 4, rounding_mode="trunc"), ids.fmod(-4), ids / 4


@devious(WHOLE, ROWS)
def bits(ids: Tensor) -> tuple[Tensor, ...]:
    return ids & 7, ids | 8, ids ^ -1, ~ids, ids << 3, ids >> 1


@devious(lambda: [(torch.tensor(r),) for r in ([7, 9, 4], [-7, -9, -1, 0], [2**20, -(2**20) - 1], [5])], ROWS)
def powers(ids: Tensor) -> tuple[Tensor, ...]:
    return ids**2, ids.float() ** 2.0, ids.int().pow(3), 2.0 ** ids.clamp(-9, 9), ids.abs() ** 0.5


@devious(BYTES, ROWS)
def bytes_that_wrap(x: Tensor) -> tuple[Tensor, ...]:
    return x + 200, x - 1, x * x, x.sum(), x.cumsum(0), ~x, x.float().mean()


@devious(BYTES, ROWS)
def bytes_compared(x: Tensor) -> tuple[Tensor, ...]:
    return x.int() - 255, (x > 127).sum(), x.max() - x.min(), x // 3, x % 7, (x - 128).to(torch.int8)


@devious(lambda: [(floats(4, 3),), (floats(7, 3) * 100,), (torch.tensor([[2.5, -2.5, 0.5]]),)], ROWS)
def floats_divided(x: Tensor) -> tuple[Tensor, ...]:
    return x % -3, x.fmod(3), x.trunc(), x.frac(), x.round(decimals=1), x.int() % 3, torch.remainder(-x, 4)


@devious(lambda: [(floats(4, 3) > 0,), (floats(7, 3) > 9,), (floats(2, 3) < 9,)], ROWS)
def flags_as_numbers(m: Tensor) -> tuple[Tensor, ...]:
    return m.sum(0), m + m, m * 3, m.float() - 1, m.cumsum(0), m ^ m.flip(0), m.int().amax(0), m.all(0) | m.any(0)


@devious(lambda: [(floats(4, 3),), (floats(4, 3) * 300,), (floats(4, 3) * 1e9,)])
def as_short_numbers(x: Tensor) -> Tensor:
    return x.long().clamp(-(2**40), 2**40) + x.clamp(-1e4, 1e4).to(torch.int16) * 3


@devious(lambda: [(floats(4, 3), torch.tensor(2)), (floats(4, 3), torch.tensor(-3)), (floats(4, 3), torch.tensor(0))])
def whole_number_beside_floats(x: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    return (
        x * k,
        x + k / 2,
        k // 2 + x,
        torch.where(x > 0, k, x),
        x.abs() ** k,
        torch.maximum(x, k.float()),
        k.expand(3) * 0.5,
    )


@devious(lambda: [(floats(4, 3).half(),), (floats(4, 3).half() * 200,), (floats(9, 3).half() * 4,)], ROWS)
def half_precision(x: Tensor) -> tuple[Tensor, ...]:
    return x.float() * 2, x.sum(0).float().clamp(-1e4, 1e4), (x * 0.5 + 1).float(), x.mean(0, dtype=torch.float32)


@devious(lambda: [(torch.tensor([2**24 + 1, 2**24 + 3, 5]),), (torch.tensor([2**30 + 7, -(2**25) - 1, 3, 2]),)], ROWS)
def whole_beyond_floats(ids: Tensor) -> tuple[Tensor, ...]:
    return (
        ids.sum(),
        ids.cumsum(0),
        ids.max(),
        ids.sort().values,
        ids.diff().abs(),
        ids.flip(0) - ids,
        ids @ ids.clamp(-3, 3),
    )
