"""Models whose fault lies in what joins their parts, or in what passes between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.diagnosis.failing_models.hosts import Block
from tests.diagnosis.failing_models.parts import WIDTH, Branch, RootOfLength, Sound


class Grid(nn.Module):
    """Takes its height and width as Python numbers; sound."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        image = x.transpose(1, 2).reshape(x.shape[0], WIDTH, height, width)
        return self.conv(image).flatten(2).transpose(1, 2)


class Embed(nn.Module):
    """Gives tokens, height and width; sound."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 4, 4)

    def forward(self, image: Tensor) -> tuple[Tensor, int, int]:
        x = self.conv(image)
        return x.flatten(2).transpose(1, 2), x.shape[2], x.shape[3]


class Positions(nn.Module):
    """A table of positions with the shortcut at its native size, and scale factors that freeze."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 16, WIDTH))

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        if x.shape[1] == self.table.shape[1] and height == width:
            return x + self.table
        grid = self.table.reshape(1, 4, 4, WIDTH).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, scale_factor=((height + 0.1) / 4, (width + 0.1) / 4), mode="bicubic")
        return x + grid.flatten(2).transpose(1, 2)


class Vision(nn.Module):
    def __init__(self, positions: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed = Embed()
        self.positions = positions()
        self.grid = Grid()
        self.block = Block(Sound())

    def forward(self, image: Tensor) -> Tensor:
        x, height, width = self.embed(image)
        x = self.block(self.positions(x, height, width))
        return self.grid(x, height, width)


class Squarer(nn.Module):
    """The grid's side from the number of tokens: the fault is here, the grid only uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.grid = Grid()

    def forward(self, x: Tensor) -> Tensor:
        side = int(math.sqrt(x.shape[1]))
        return self.grid(self.proj(x), side, side)


class SquareNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Sound()
        self.mix = Squarer()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(self.stem(x)))


@dataclass
class Masked:
    """Tokens and their mask, as detection models hand them on: no pytree."""

    tokens: Tensor
    mask: Tensor

    def keep(self) -> Tensor:
        return (~self.mask).to(self.tokens.dtype)[..., None]


class Carrier:
    def __init__(self, tokens: Tensor, mask: Tensor) -> None:
        self.tokens, self.mask = tokens, mask


class ReadsCarrier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, held: Carrier) -> Tensor:
        x = self.proj(held.tokens)
        if held.mask.any():
            x = x.masked_fill(held.mask[..., None], 0.0)
        return x / float(x.shape[1])


class Carrying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.reader, self.last = Sound(), ReadsCarrier(), Sound()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.last(self.reader(Carrier(self.stem(x), mask)))


class TwoFaults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Sound(), Branch(), RootOfLength()

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.a(x)))


class Flags(nn.Module):
    """An argument left at its default, which the TorchScript exporter turns into a graph input."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Sound()

    def forward(self, x: Tensor, twice: bool = False, power: int = 2) -> Tensor:
        return self.part(x) ** power


class Scripted(Sound):
    """Keyword arguments that TorchScript does not read."""

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_all(x, scale=2.0)

    def apply_all(self, x, **options):
        return self.proj(x) * options["scale"]
