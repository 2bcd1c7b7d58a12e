"""Models that put a part at different depths, beside sound parts of the same shapes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.diagnosis.failing_models.parts import WIDTH, Sound


class Block(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.part = part
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.part(self.norm(x) + x)
        return x + self.mlp(x)


class Net(nn.Module):
    """Stem, three blocks of which the middle one holds the part, head."""

    def __init__(self, part: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.Sequential(Block(Sound()), Block(part()), Block(Sound()))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


class Flat(nn.Module):
    """The part at the top level, in front of sound ones."""

    def __init__(self, part: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = Sound()
        self.part = part()
        self.last = Sound()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.part(self.first(x)))


class Listed(nn.Module):
    """Layers in a plain list, as torch does not see them, and a dict of outputs."""

    def __init__(self, part: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Sound(), part(), Sound()])
        self.heads = nn.ModuleDict({"a": nn.Linear(WIDTH, 2), "b": nn.Linear(WIDTH, 3)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            x = x + layer(x)
        return {name: head(x) for name, head in self.heads.items()}


class Backbone(nn.Module):
    def __init__(self, part: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Sound(), part()])

    def features(self, x: Tensor) -> list[Tensor]:
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return found


class ByMethod(nn.Module):
    """The backbone is called by a method, as backbones often are."""

    def __init__(self, part: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.backbone = Backbone(part)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(sum(self.backbone.features(x)))


class OwnFault(nn.Module):
    """Sound parts; the fault is in the forward of the block that joins them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Sound()
        self.join = Joint()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.join(self.stem(x)))


class Joint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Sound(), Sound()

    def forward(self, x: Tensor) -> Tensor:
        half = int(x.shape[1] / 2)
        return torch.cat([self.a(x[:, :half]), self.b(x[:, half:])], 1) + x[:, :half].mean(1, keepdim=True)
