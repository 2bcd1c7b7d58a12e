"""Cases of one function each: the module that calls it, its inputs, and which axes are dynamic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case

BOTH = ((4, 6), (7, 9), (1, 2))
MakeCase = Callable[..., Callable[[], Case]]


class One(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(x)


class Two(One):
    def forward(self, x: Tensor, y: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y)


class Three(One):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Any:  # type: ignore[override]
        return self.call(x, y, z)


def cases_of(module: str) -> MakeCase:
    """`case` for the functions of a file. Its models pass for classes of that file: Python's `int` and `len` stay
    symbolic in the files of a model's classes, as they would where the function were written in a forward."""
    own = [type(model.__name__, (model,), {"__module__": module}) for model in (One, Two, Three)]
    return functools.partial(case, own)


def case(
    models: Sequence[type[nn.Module]],
    call: Callable[..., Any] | nn.Module,
    make: Callable[..., Any] = torch.randn,
    sizes: Sequence[tuple[int, ...]] = BOTH,
    *,
    axes: Sequence[dict[int, str]] | None = None,
    tolerance: float = 1e-3,
) -> Callable[[], Case]:
    """models: what calls a function of one, two or three arguments. make: a size to one argument or a tuple of them.
    axes: dynamic ones; those of the first argument that differ between the sizes unless given."""

    def build() -> Case:
        torch.manual_seed(0)
        inputs: list[Args] = [made if isinstance(made, tuple) else (made,) for made in (make(*size) for size in sizes)]
        model = call if isinstance(call, nn.Module) else models[len(inputs[0]) - 1](call)
        shapes = axes or [
            {a: f"n{i}{a}" for a, n in enumerate(args.shape) if any(other[i].shape[a] != n for other in inputs)}
            for i, args in enumerate(inputs[0])
        ]
        return Case(model.eval(), inputs, tuple(shapes), tolerance)

    return build


def both_examples(
    case: MakeCase, name: str, build: Callable[..., Any], *args: Any, sizes: Sequence[tuple[int, ...]], **more: Any
) -> dict[str, Callable[[], Case]]:
    """From a size at which the `if` is false, and from one at which it is true."""
    return {name: case(build, *args, sizes, **more), f"{name}_other": case(build, *args, sizes[::-1], **more)}
