"""Small models, each with one condition, for what is and is not an input's to turn."""

from __future__ import annotations

from collections import defaultdict

from torch import Tensor, nn


class OnData(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 10:
            x = x + 1
        return x


class OnSize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 2 else x


class Fixed(nn.Module):
    """Attributes, None, the rank and the type: the call decides them, and no input."""

    def __init__(self) -> None:
        super().__init__()
        self.causal, self.gate, self.weight = False, None, nn.Parameter(-torch_ones())

    def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        if self.causal or self.training:
            x = x + 1
        if mask is not None and self.gate is None:
            x = x * mask
        if x.dim() == 4 or len(x.shape) == 3 or x.dtype != x.dtype or not isinstance(x, Tensor):
            x = x[0]
        parts = []
        if self.gate:
            parts.append(x)
        if parts or self.weight.sum() > 0 or scale != 1.0:
            x = x - 1
        return x


def torch_ones() -> Tensor:
    import torch

    return torch.ones(3)


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] != 3:
            raise ValueError("three columns")
        assert x.shape[0] < 100
        if x.isnan().any():
            print("NaN")
        return x


class Parts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        if n > 2 and x.sum() > 20:
            x = x + 1
        return x


class Value(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found = x.max() > 0 and x.min()
        return x * found


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if not x.sum() <= 0 else -x


class Listed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + len([row for row in x.tolist() if sum(row) > 10])


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        while n > 2:
            x, n = x + 1, n - 1
        return x


class Between(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n = len(x)
        return x if 1 < n < 5 else -x


def double(x: Tensor, flag: bool) -> Tensor:
    return 2 * x if flag else x


class Handed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return double(x, flag=bool((x > 5).any()))


class Cases(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        match len(x):
            case 2:
                return x
            case 3:
                return 2 * x
        return x


class Caught(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            return x.view(2, 3) + 1
        except RuntimeError:
            return x


class Assigned(nn.Module):
    """Whether there is a mask hangs on a size."""

    def forward(self, x: Tensor) -> Tensor:
        mask = None
        if x.shape[0] > 5:
            mask = x * 0
        return x if mask is None else x * mask


def scale_of(x: Tensor) -> Tensor | None:
    if x.sum() > 0:
        return None
    return x.sum()


class Through(nn.Module):
    """What a helper returns is None for some data; the condition in the helper was taken both ways."""

    def forward(self, x: Tensor) -> Tensor:
        for one in (x, -x):
            scale_of(one)
        scale = scale_of(x * 1)
        return x if scale is None else x * scale


class Picker(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        kept = x[x > 0]
        return x, kept if len(kept) else None


class Returned(nn.Module):
    """One of two returned values is None for some data."""

    def __init__(self) -> None:
        super().__init__()
        self.pick = Picker()

    def forward(self, x: Tensor) -> Tensor:
        self.pick(-x)
        same, kept = self.pick(x)
        return same if kept is None else same + kept.sum()


class Given(nn.Module):
    """A helper that is handed None, though others hand it tensors; a flag from a dict of keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = {"flag": False}

    def forward(self, x: Tensor, **more: Tensor) -> Tensor:
        if more.get("mask") is not None or self.settings["flag"] or "mask" in more:
            x = x + 1
        return self.inner(x, mask=None, shape=(2, 3))

    def inner(self, x: Tensor, mask: Tensor | None, **more: object) -> Tensor:
        if mask is not None:
            x = x * mask
        return x if more.get("shape") is not None else -x


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        self.length = x.shape[0]
        return self.after(x)

    def after(self, x: Tensor) -> Tensor:
        return x + 1 if self.length > 3 else x


class WithoutIf(nn.Module):
    """Chooses without an `if`: by sizes, by data, and by what no input turns."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.table = 1, [2.0, 3.0]

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        y = x * max(n, 100) + self.table[self.kind] + {40: 1.0}.get(n, 0.0)
        y = y + int(f"{n:04d}"[1]) + [0, 1][bool((x > 5).any())] + max(self.table)
        return y + sum(map(lambda row: float(row[0] > 7), x))


class UsedUp(nn.Module):
    """Looking at what it chooses once more would change what it answers."""

    def __init__(self):
        super().__init__()
        self.numbers, self.asked = iter([1.0, 7.0]), 0

    def counted(self, number):
        self.asked += 1
        return -number

    def forward(self, x):
        sizes, table = iter([x.shape[0], 3]), defaultdict(int)
        largest = max(sizes)
        text = str(table[largest]) if largest in table else "none"
        least = max(self.numbers) + sorted([x.shape[0], 3], key=self.counted)[0]
        return x * largest + len(text) + len(str(table[7])) + len(table) + least + self.asked
