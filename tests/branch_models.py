"""Small models that branch on data or on sizes, each with inputs for every branch: the material of test_branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Reference = Callable[[Any, tuple], Any]


@dataclasses.dataclass
class Case:
    """`inputs`: the export example first, then one for every other branch or size."""

    name: str
    model: Callable[[], nn.Module]
    inputs: list[tuple]
    dynamic: Any
    reference: Reference


@dataclasses.dataclass
class Refusal:
    """A model that must be refused, and what the error must say."""

    name: str
    model: Callable[[], nn.Module]
    inputs: tuple
    dynamic: Any
    says: tuple[str, ...]
    options: dict[str, Any]


RIGHT: list[Case] = []
REFUSED: list[Refusal] = []
ROWS = ({0: "rows"},)


def up(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) + 0.2


def down(*shape: int) -> torch.Tensor:
    return -torch.rand(*shape) - 0.2


def right(*inputs: Any, dynamic: Any = ROWS, reference: Reference = lambda output, inputs: output) -> Any:
    """Register a model that must come out right; each of `inputs` is a tensor or a tuple of arguments."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        given = [i if isinstance(i, tuple) else (i,) for i in inputs]
        RIGHT.append(Case(cls.__name__, lambda: cls().eval(), given, dynamic, reference))
        return cls

    return register


def refused(*inputs: Any, says: tuple[str, ...], dynamic: Any = ROWS, **options: Any) -> Any:
    """Register a model that must be refused."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        REFUSED.append(Refusal(cls.__name__, lambda: cls().eval(), inputs, dynamic, says, options))
        return cls

    return register


def present(value: torch.Tensor | None, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the graph has for an optional value: the value or zeros, and whether it is there."""
    return (torch.zeros_like(like) if value is None else value, torch.tensor(value is not None))


# ---- None among the outputs


@right(up(2, 4), torch.zeros(3, 4), reference=lambda o, i: present(o, i[0]))
class nothing_found(nn.Module):
    def forward(self, x):
        if not x.any():
            return None
        return x / x.max()


@right(up(2, 4), up(5, 4))
class never_returns_the_second(nn.Module):
    def __init__(self):
        super().__init__()
        self.wanted = False

    def forward(self, x):
        return {"kept": x * 2, "extra": x if self.wanted else None, "name": "fixed"}


# ---- if


@right(up(2, 4), down(2, 4), down(5, 4))
class leaves_early(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        if x.mean() < 0:
            return F.relu(x + 0.5)
        return self.inner(x)


@right(up(2, 4), up(7, 4), up(5, 4))
class long_batches_are_scaled(nn.Module):
    def forward(self, x):
        if x.size(0) >= 5:
            return x / x.size(0)
        return x * 2


# ---- refused


@refused(up(3, 4) * 9, says=("halves_until_small", "loop", "while_loop"))
class halves_until_small(nn.Module):
    def forward(self, x):
        while x.max() > 1:
            x = x * 0.5
        return x
