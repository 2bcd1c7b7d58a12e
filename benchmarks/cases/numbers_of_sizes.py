"""Python numbers and lists made of sizes: remainders, halves, windows, kernels, numbers of parts.

Every case is judged at sizes that the export never saw, with other data; docs/causes.md says what came of each cause.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.one_function import cases_of

LIBRARIES = ("torch",)
IMAGES = ((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 5, 7), (2, 3, 20, 16))
TOKENS = ((2, 6, 4), (3, 9, 4), (1, 1, 4), (2, 14, 4))
case = cases_of(__name__)


def windows(x: Tensor) -> Tensor:
    b, n, c = x.shape
    pad = -n % 4
    x = F.pad(x, (0, 0, 0, pad))
    parts = x.reshape(b, (n + pad) // 4, 4, c)
    places = torch.arange(n + pad).reshape(-1, 4) < n
    scores = (parts @ parts.transpose(-1, -2)).masked_fill(~places[None, :, None], -1e9)
    return (scores.softmax(-1) @ parts).reshape(b, n + pad, c)[:, :n]


def strips(x: Tensor) -> Tensor:
    """Stripes whose width is the smaller of 4 and the image's."""
    b, c, h, w = x.shape
    size = min(4, w)
    wide = w // size
    return x[..., : wide * size].reshape(b, c, h, wide, size).amax(-1)


def shifted_mask(x: Tensor) -> Tensor:
    """Swin's: regions numbered by slices."""
    _, _, h, w = x.shape
    regions = torch.zeros(h, w)
    count = 0
    for rows in (slice(0, -4), slice(-4, -2), slice(-2, None)):
        for columns in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            regions[rows, columns] = count
            count += 1
    return x + regions


def normalised_by_size(x: Tensor) -> Tensor:
    return F.layer_norm(x, [x.shape[-1]]) + F.layer_norm(x, tuple(x.shape[-1:]))


def kernel_of_the_size(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, (x.size(2), x.size(3))) + F.max_pool2d(x, kernel_size=x.size()[2:])


def missing_as_number(x: Tensor) -> Tensor:
    missing = (4 - x.shape[1] % 4) % 4
    return x * missing + torch.arange(missing).sum() + missing


def negative_rest(x: Tensor) -> Tensor:
    rest = -x.shape[1] % 4
    return x * rest + rest


def whole_part_as_number(x: Tensor) -> Tensor:
    size = int(x.shape[1] * 2.0 + 0.1)
    y = F.interpolate(x.transpose(1, 2), scale_factor=(x.shape[1] * 2 + 0.1) / x.shape[1])
    return y * size + size


def is_integer(x: Tensor) -> Tensor:
    half = x.shape[1] / 2
    missing = 0 if half.is_integer() else 1
    return F.pad(x, (0, 0, 0, missing)).reshape(x.shape[0], -1, 2, x.shape[2])


def integer_keys(x: Tensor) -> dict[int, Tensor]:
    return {n: x[:, :n].mean(1) for n in (1, 2)}


def split_in_halves(x: Tensor) -> Tensor:
    left, right = x.split(x.shape[1] // 2, 1)[:2]
    return left - right


def split_all(x: Tensor) -> list[Tensor]:
    return [part.amax(1) for part in x.split(2, 1)][:2]


def chunks_unpacked(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return a.sum(1) * b.sum(1)


CASES: dict[str, Callable[[], Case]] = {
    "windows": case(windows, sizes=TOKENS),
    "strips": case(strips, sizes=(*IMAGES, (1, 3, 4, 3))),
    "shifted_mask": case(shifted_mask, sizes=IMAGES),
    "normalised_by_size": case(normalised_by_size, sizes=TOKENS),
    "kernel_of_the_size": case(kernel_of_the_size, sizes=IMAGES),
    "missing_as_number": case(missing_as_number, sizes=TOKENS),
    "negative_rest": case(negative_rest, sizes=TOKENS),
    "whole_part_as_number": case(whole_part_as_number, sizes=TOKENS),
    "is_integer": case(is_integer, sizes=TOKENS),
    "integer_keys": case(integer_keys, sizes=TOKENS),
    "split_in_halves": case(split_in_halves, sizes=((2, 6, 4), (3, 10, 4), (1, 2, 4))),
    "split_all": case(split_all, sizes=((2, 6, 4), (3, 10, 4), (1, 4, 4))),
    "chunks_unpacked": case(chunks_unpacked, sizes=((2, 6, 4), (3, 9, 4), (1, 2, 4))),
}  # fmt: skip
