"""How a devious model is declared: a forward, its example, and the inputs at which its graph is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Args = tuple[Any, ...]


class Call(nn.Module):
    """A forward as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Devious:
    """inputs: the example first, then the held-out ones. branches: whether it is also judged with branches=True."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], Sequence[Args]]
    dynamic: Any
    branches: bool


KINDS: dict[str, Devious] = {}


def devious(inputs: Callable[[], Sequence[Args]], dynamic: Any = None, branches: bool = False) -> Callable[[Any], Any]:
    """Declare a function, or a module's class, as a devious model; it is named after its file and itself."""

    def declare(made: Any) -> Any:
        build = made if isinstance(made, type) else lambda: Call(made)
        kind = made.__module__.rpartition(".")[2]
        KINDS[f"{kind}: {made.__name__}"] = Devious(build, inputs, dynamic, branches)
        return made

    return declare


def floats(*shape: int, seed: int = 1) -> torch.Tensor:
    """Numbers from a normal distribution, the same ones each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def planted(x: torch.Tensor, value: float, *places: int) -> torch.Tensor:
    """The same tensor with a value at some of its elements."""
    x = x.clone()
    for place in places:
        x.view(-1)[place] = value
    return x


def sizes(*tried: int, width: int = 3) -> Callable[[], list[Args]]:
    """(n, width) of normal numbers for each size, the example's first."""
    return lambda: [(floats(n, width, seed=n),) for n in tried]
