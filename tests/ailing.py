"""Models with one part that cannot be exported, or exports wrong, among parts that are fine: what the doctor must find.

Parts are written as people write them. Hosts put them at different depths, beside sound parts of the same shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 8


@dataclass(frozen=True)
class Ailing:
    """A case. path: the true culprit; code: a part of its line, where one line is to blame; data: other inputs."""

    name: str
    build: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    dynamic_shapes: Any
    exporter: str
    path: str
    status: str
    code: str = ""
    operator: str = ""
    data: list[Any] = field(default_factory=list)


# ------------------------------------------------------------------ parts on (batch, length, WIDTH)
class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.proj(x))


class Branch(Sound):
    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        if x.sum() > 0:
            y = y * 2
        return y


class BranchOnSize(Sound):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 7:
            return self.proj(x) * 3
        return self.proj(x)


class RootOfLength(Sound):
    def forward(self, x: Tensor) -> Tensor:
        k = int(x.shape[1] ** 0.5)
        return self.proj(x) + x[:, :k].mean(1, keepdim=True)


class ScaleByLength(Sound):
    def forward(self, x: Tensor) -> Tensor:
        scale = math.sqrt(x.shape[1])
        return self.proj(x) / float(scale)


class Rows(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.proj(row) for row in x])


class Steps(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, 0] * 0
        seen = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            seen.append(h)
        return torch.stack(seen, 1)


class Item(Sound):
    def forward(self, x: Tensor) -> Tensor:
        top = x.abs().max().item()
        return self.proj(x) / (top + 1.0)


class Rebuilt(Sound):
    def forward(self, x: Tensor) -> Tensor:
        bounds = torch.tensor([float(x.min()), float(x.max())])
        return self.proj(x) * bounds.sum()


class Table(Sound):
    """A lazily built table, kept at the size of the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.table.shape[0] != x.shape[1]:
            self.table = torch.arange(x.shape[1]).unsqueeze(1).float() / 10
        return self.proj(x) + self.table


class Spectrum(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + torch.fft.fft(x, dim=-1).abs()


class Values(Sound):
    def forward(self, x: Tensor) -> Tensor:
        s = torch.linalg.svdvals(x)
        return self.proj(x) * s[..., :1, None]


class Ranked(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + torch.kthvalue(x, 2, dim=-1, keepdim=True).values


class Selected(Sound):
    def forward(self, x: Tensor) -> Tensor:
        kept = x[x[..., 0] > 0]
        if kept.shape[0] > 2:
            return self.proj(x) + kept.mean(0)
        return self.proj(x)


class Pooled(Sound):
    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool1d(x.transpose(1, 2), 3)
        return self.proj(x) + pooled.mean(-1)[:, None]


class Repeated(Sound):
    """`int()` of a tensor's value decides a size."""

    def forward(self, x: Tensor) -> Tensor:
        n = int((x[0, 0] > 0).sum())
        return self.proj(x) + x[:, : n + 1].sum(1, keepdim=True)


class MeanScatter(Sound):
    """scatter_reduce's mean counts the target too where include_self is left at True; converters differ."""

    def forward(self, x: Tensor) -> Tensor:
        index = (torch.arange(WIDTH, device=x.device) // 2).expand_as(x)
        return self.proj(x) + torch.zeros_like(x).scatter_reduce(-1, index, x, reduce="mean", include_self=False)


class Guarded(Sound):
    """Asserts that warn under a trace and do no harm; only the branch does."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[-1] == WIDTH
        assert torch.isfinite(x).all()
        if x.mean() < 0:
            x = -x
        return self.proj(x)


class Padded(Sound):
    """Windows of four, padded in Python."""

    def forward(self, x: Tensor) -> Tensor:
        pad = (4 - x.shape[1] % 4) % 4
        if pad > 0:
            x = F.pad(x, (0, 0, 0, pad))
        windows = x.reshape(x.shape[0], x.shape[1] // 4, 4, WIDTH)
        return self.proj(windows.mean(2))


# ------------------------------------------------------------------ hosts
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


# ------------------------------------------------------------------ the cases
def _tokens() -> tuple[Tensor]:
    return (torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _eight() -> tuple[Tensor]:
    return (torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _warm() -> nn.Module:
    """A model that has run once, and keeps the table of that run."""
    model = Net(Table)
    model(*_tokens())
    return model


def _sixteen() -> tuple[Tensor]:
    return (torch.randn(2, 16, WIDTH, generator=torch.Generator().manual_seed(1)),)


def _image() -> tuple[Tensor]:
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)),)


def _masked() -> tuple[Tensor, Tensor]:
    return (*_tokens(), torch.zeros(2, 6, dtype=torch.bool))


LENGTH = ({0: "batch", 1: "length"},)
BATCH = ({0: "batch"},)
IMAGE = ({2: "height", 3: "width"},)


def _net(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Net(part)


def _flat(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Flat(part)


def _listed(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Listed(part)


def _by_method(part: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: ByMethod(part)


FEW = [(torch.randn(1, 2, WIDTH, generator=torch.Generator().manual_seed(2)),)]
DEEP, TOP, LIST, METHOD = "blocks.1.part", "part", "layers.1", "backbone.layers.1"
CASES = [
    # the TorchScript exporter by tracing: mostly silent
    Ailing("branch", _net(Branch), _tokens, LENGTH, "trace", DEEP, "silent", "if x.sum() > 0"),
    Ailing("branch-flat", _flat(Branch), _tokens, LENGTH, "trace", TOP, "silent", "if x.sum() > 0"),
    Ailing("branch-method", _by_method(Branch), _tokens, LENGTH, "trace", METHOD, "silent", "if x.sum() > 0"),
    Ailing("size-branch", _net(BranchOnSize), _tokens, LENGTH, "trace", DEEP, "silent", "if x.shape[1] > 7"),
    Ailing("size-branch-list", _listed(BranchOnSize), _tokens, LENGTH, "trace", LIST, "silent", "x.shape[1] > 7"),
    Ailing("root", _net(RootOfLength), _tokens, LENGTH, "trace", DEEP, "silent", "int(x.shape[1]"),
    Ailing("root-method", _by_method(RootOfLength), _tokens, LENGTH, "trace", METHOD, "silent", "int(x.shape[1]"),
    Ailing("scale", _listed(ScaleByLength), _tokens, LENGTH, "trace", LIST, "silent", "sqrt(x.shape[1])"),
    Ailing("rows", _net(Rows), _tokens, LENGTH, "trace", DEEP, "silent", "for row in x"),
    Ailing("steps", _flat(Steps), _tokens, LENGTH, "trace", TOP, "silent", "range(x.size(1))"),
    Ailing("item", _net(Item), _tokens, LENGTH, "trace", DEEP, "silent", ".item()"),
    Ailing("rebuilt", _listed(Rebuilt), _tokens, LENGTH, "trace", LIST, "silent", "torch.tensor("),
    Ailing("table", _warm, _tokens, LENGTH, "trace", DEEP, "silent"),
    Ailing("spectrum", _net(Spectrum), _tokens, LENGTH, "trace", DEEP, "refused", "fft", "aten::fft_fft"),
    Ailing("values", _by_method(Values), _tokens, LENGTH, "trace", METHOD, "refused", "svdvals", "svdvals"),
    Ailing("ranked", _listed(Ranked), _tokens, LENGTH, "trace", LIST, "refused", "kthvalue", "aten::kthvalue"),
    Ailing("selected", _flat(Selected), _tokens, LENGTH, "trace", TOP, "silent", "kept.shape[0]", data=FEW),
    Ailing("pooled", _net(Pooled), _tokens, LENGTH, "trace", DEEP, "refused", "adaptive_avg_pool1d"),
    Ailing("repeated", _flat(Repeated), _tokens, LENGTH, "trace", TOP, "silent", "int("),
    Ailing("guarded", _flat(Guarded), _tokens, LENGTH, "trace", TOP, "silent", "if x.mean() < 0"),
    Ailing("padded", _flat(Padded), _eight, LENGTH, "trace", TOP, "silent", "if pad > 0"),
    Ailing("own", OwnFault, _tokens, LENGTH, "trace", "join", "silent", "int(x.shape[1] / 2)"),
    Ailing("squarer", SquareNet, _sixteen, LENGTH, "trace", "mix", "silent", "math.sqrt(x.shape[1])"),
    Ailing("positions", lambda: Vision(Positions), _image, IMAGE, "trace", "positions", "silent"),
    Ailing("carried", Carrying, _masked, (LENGTH[0], LENGTH[0]), "trace", "reader", "silent", "held.mask.any()"),
    Ailing("flags", Flags, _tokens, LENGTH, "trace", "", "silent"),
    # torch.export: refused, or silent where a size was settled
    Ailing("branch", _net(Branch), _tokens, LENGTH, "dynamo", DEEP, "refused", "if x.sum() > 0"),
    Ailing("branch-list", _listed(Branch), _tokens, LENGTH, "dynamo", LIST, "refused", "if x.sum() > 0"),
    Ailing("size-branch", _net(BranchOnSize), _tokens, LENGTH, "dynamo", DEEP, "silent", "if x.shape[1] > 7"),
    Ailing("root", _by_method(RootOfLength), _tokens, LENGTH, "dynamo", METHOD, "silent", "int(x.shape[1]"),
    Ailing("rows", _net(Rows), _tokens, LENGTH, "dynamo", DEEP, "refused", "for row in x"),
    Ailing("values", _flat(Values), _tokens, LENGTH, "dynamo", TOP, "refused", "svdvals", "svd"),
    Ailing("ranked", _net(Ranked), _tokens, LENGTH, "dynamo", DEEP, "refused", "kthvalue", "aten::kthvalue"),
    Ailing("selected", _listed(Selected), _tokens, LENGTH, "dynamo", LIST, "refused", "kept.shape[0]"),
    Ailing("scatter", _net(MeanScatter), _tokens, LENGTH, "dynamo", DEEP, "silent", "scatter_reduce"),
    Ailing("padded", _flat(Padded), _eight, LENGTH, "dynamo", TOP, "silent", "if pad > 0"),
    Ailing("own", OwnFault, _tokens, LENGTH, "dynamo", "join", "silent", "int(x.shape[1] / 2)"),
    Ailing("squarer", SquareNet, _sixteen, LENGTH, "dynamo", "mix", "refused", "math.sqrt(x.shape[1])"),
    Ailing("positions", lambda: Vision(Positions), _image, IMAGE, "dynamo", "positions", "silent"),
    Ailing("two", TwoFaults, _tokens, LENGTH, "dynamo", "b", "refused", "if x.sum() > 0"),
    # torch.jit.script
    Ailing("keywords", _net(Scripted), _tokens, LENGTH, "script", DEEP, "refused"),
    Ailing("spectrum", _flat(Spectrum), _tokens, LENGTH, "script", TOP, "refused", "fft", "aten::fft_fft"),
]
