"""The cases of test_branches: models that branch on data or on sizes, with inputs for every branch; refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
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
