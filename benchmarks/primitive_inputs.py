"""Inputs of n elements for `benchmarks.primitive_cases`, and what it measures that takes more than an expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def row(n: int) -> tuple[Tensor]:
    return (torch.randn(1, n),)


def matrix(n: int) -> tuple[Tensor]:
    return (torch.randn(max(1, n // 64), 64),)


def image(n: int) -> tuple[Tensor]:
    side = math.isqrt(max(4, n // 3))
    return (torch.randn(1, 3, side, side),)


def searched(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n).sort()[0], torch.randn(n)


def counted(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2), torch.arange(n) % 3


def pairs(n: int) -> tuple[Tensor, Tensor]:
    rows = math.isqrt(n)
    return torch.randn(rows, 16), torch.randn(rows, 16)


def scattered(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n), torch.randint(0, 16, (n,))


def members(n: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, n, (n,)), torch.randint(0, n, (n,))


def thousands(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 1000, 1000),)


def spectra(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 1000, 501, 2),)


def cameras(n: int) -> tuple[Tensor]:
    return (torch.randn(n // 9, 3, 3) + 3 * torch.eye(3),)


def warped(n: int) -> tuple[Tensor, Tensor]:
    return *image(n), torch.randn(1, 2, 3)


def root(n: int) -> tuple[Tensor]:
    return (torch.randn(1, math.isqrt(n)),)


def eight(n: int) -> tuple[Tensor]:
    return (torch.randn(8, n // 8),)


def whole_numbers(n: int) -> tuple[Tensor]:
    return (torch.randint(0, n, (n,)),)


def channels(n: int) -> tuple[Tensor]:
    side = math.isqrt(max(9, n // 32))
    return (torch.randn(1, 32, side, side),)


def even_image(n: int) -> tuple[Tensor]:
    side = math.isqrt(max(4, n // 3)) // 2 * 2
    return (torch.randn(1, 3, side, side),)


def gridded(n: int) -> tuple[Tensor, Tensor]:
    (pixels,) = image(n)
    return pixels, torch.rand(1, *pixels.shape[2:], 2) * 2.2 - 1.1


def heads(n: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of as many tokens as make n elements with their scores."""
    rows = max(2, math.isqrt(n // 4))
    return torch.randn(1, 4, rows, 16), torch.randn(1, 4, rows, 16)


def symmetric(n: int) -> tuple[Tensor]:
    (a,) = cameras(n)
    return (a @ a.mT + torch.eye(3),)


def tokens(n: int) -> tuple[Tensor]:
    return (torch.randn(max(2, n // 128), 64),)


def assigned(x: Tensor) -> Tensor:
    made = x.clone()
    made[x > 0] = 1.0
    return made


def unpooled(x: Tensor) -> Tensor:
    made, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(made, places, 2)


def folded(x: Tensor) -> Tensor:
    return F.fold(F.unfold(x, 2, stride=2), x.shape[-2:], 2, stride=2)


def sampled(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def complex_product(x: Tensor) -> Tensor:
    z = torch.view_as_complex(x)
    return torch.view_as_real(z * z)


def experts() -> nn.Module:
    """Two of eight experts for each token, as in Mixtral."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    block = MixtralSparseMoeBlock(MixtralConfig(hidden_size=64, intermediate_size=128))
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(std=0.1)
    return _Batched(block)


class _Batched(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, tokens: Tensor) -> Tensor:
        found: Any = self.block(tokens[None])
        return found[0] if isinstance(found, tuple) else found


def grid(x: Tensor, theta: Tensor) -> Tensor:
    return F.affine_grid(theta, list(x.shape), align_corners=False)


def stft(x: Tensor) -> Tensor:
    return torch.stft(x, 256, 64, window=torch.ones(256), return_complex=False)


def resize(size: int, mode: str, antialias: bool = False) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, (size, size), mode=mode, antialias=antialias)
