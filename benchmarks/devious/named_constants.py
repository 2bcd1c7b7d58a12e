"""Constants that no comparison shows, since Python compares plain ints with names: globals, attributes, defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])
END, LONG, CODES = 777, 333, {"begin": 888, "pad": 0}
STARTS = lambda number: [(IDS,), (planted(IDS, number, 0),), (planted(IDS, number, 5),)]  # noqa: E731


@devious(lambda: STARTS(777))
def global_number(ids: Tensor) -> Tensor:
    return ids.flip(-1) if int(ids[0, 0]) == END else ids


@devious(lambda: STARTS(888))
def global_table(ids: Tensor) -> Tensor:
    return ids.flip(-1) if int(ids[0, 0]) == CODES["begin"] else ids


class OfTheClass(nn.Module):
    END = 555

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if int(ids[0, 0]) == self.END else ids


devious(lambda: STARTS(555))(OfTheClass)


class OfTheModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.code = 432

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if int(ids[0, 0]) == self.code else ids


devious(lambda: STARTS(432))(OfTheModule)


@dataclass
class Settings:
    stop: int = 611
    longest: int = 222


class OfSettings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings()

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if self.settings.stop in ids.tolist()[0] else ids


devious(lambda: STARTS(611))(OfSettings)


def _ends(ids: Tensor, end: int = 919) -> bool:
    return int(ids[0, 0]) == end


def _stops(ids: Tensor) -> bool:
    return _ends(ids)


@devious(lambda: STARTS(919))
def default_of_a_helper_of_a_helper(ids: Tensor) -> Tensor:
    return ids * 2 if _stops(ids) else ids


class Closed(nn.Module):
    """The number is in a closure."""

    def __init__(self, end: int = 747) -> None:
        super().__init__()
        self.ends = lambda ids: int(ids[0, 0]) == end

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if self.ends(ids) else ids


devious(lambda: STARTS(747))(Closed)


class Rule:
    """A plain object that decides."""

    def __init__(self) -> None:
        self.end, self.longest = 646, 272

    def ends(self, ids: Tensor) -> bool:
        return int(ids[0, 0]) == self.end

    def is_long(self, x: Tensor) -> bool:
        return len(x) > self.longest


class ByARule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rule = Rule()

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if self.rule.ends(ids) else ids


devious(lambda: STARTS(646))(ByARule)


class ListOfIds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bad = [(1301, 17), (1402, 18)]

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if tuple(ids[0, :2].tolist()) in self.bad else ids


devious(lambda: [(IDS,), (planted(planted(IDS, 1402, 0), 18, 1),), (planted(IDS, 1301, 0),)])(ListOfIds)


@devious(sizes(10, 334, 333, 600), ROWS)
def longer_than_a_global(x: Tensor) -> Tensor:
    return x.mean(0) if len(x) > LONG else x.sum(0)


class LongByAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cutoff = 205

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(0) if int(x.shape[0]) > self.cutoff else x.sum(0)


devious(sizes(10, 206, 205, 500), ROWS)(LongByAttribute)


class LongBySettings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.options = SimpleNamespace(most=Settings())

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(0) if len(x) > self.options.most.longest else x.sum(0)


devious(sizes(10, 223, 222, 500), ROWS)(LongBySettings)


def _is_long(x: Tensor, longest: int = 181) -> bool:
    return len(x) > longest


@devious(sizes(10, 182, 181, 400), ROWS)
def longer_than_a_default(x: Tensor) -> Tensor:
    return x.mean(0) if _is_long(x) else x.sum(0)


class LongByARule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rule = Rule()

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(0) if self.rule.is_long(x) else x.sum(0)


devious(sizes(10, 273, 272, 500), ROWS)(LongByARule)


class ThresholdOfFloats(nn.Module):
    """A share of the mean, by an attribute that no tensor meets."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 64.0

    def forward(self, x: Tensor) -> Tensor:
        return x / 2 if max(x.flatten().tolist()) > self.most else x


devious(lambda: [(floats(3, 4),), (planted(floats(3, 4), 65.0, 3),), (planted(floats(3, 4), 640.0, 7),)])(
    ThresholdOfFloats
)
