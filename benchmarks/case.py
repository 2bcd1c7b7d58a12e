"""What a coverage case is: a model, inputs at several sizes, the dimensions that are dynamic.

A family is a module ``benchmarks/cases/<family>.py`` with

    LIBRARIES = ("vit-pytorch",)                      # distributions whose versions the table names
    CASES: dict[str, Callable[[], Case]] = {...}      # name -> a small function that builds the case
    LEFT_OUT: dict[str, str] = {...}                  # optional: what has no case, and why

Where a case says which of its inputs has the native size, coverage exports from that one as well: ``<case>@native``.
Builders are called in a process of their own after ``torch.manual_seed(0)``.
"""

from __future__ import annotations

import copy
import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

Args = tuple[Any, ...]
Dynamic = tuple[Any, ...] | dict[str, Any] | None


@dataclass
class Case:
    """A model and the inputs to judge its export with.

    inputs: positional arguments, several sets. The first is the export example; the others are sizes (or data) that the
        export never saw.
    dynamic_shapes: as ``torch.export`` takes it, with string names: one entry per argument.
    tolerance: largest allowed error, as a part of the output's largest magnitude.
    native: which of ``inputs`` has the size that the model was made for, where that is not the example. Exporters take
        other shortcuts there, so coverage exports from it as well.
    """

    model: nn.Module
    inputs: Sequence[Args]
    dynamic_shapes: Dynamic = None
    tolerance: float = 1e-3
    native: int | None = None

    def from_native(self) -> Case | None:
        """The case with the native size as its export example; None where that is the example, or there is none."""
        if self.native is None:
            return None
        example = self.inputs[self.native]
        others = [args for index, args in enumerate(self.inputs) if index != self.native]
        return replace(self, inputs=[example, *others], native=None)


NATIVE = "@native"


def build(family_name: str, case: str) -> Case | None:
    """The case by its name in the tables; None for ``<case>@native`` where the example has the native size already."""
    torch.manual_seed(0)
    made: Case = family(family_name).CASES[case.removesuffix(NATIVE)]()
    return made.from_native() if case.endswith(NATIVE) else made


def families() -> list[str]:
    """The names of the families that have a module in benchmarks/cases."""
    import benchmarks.cases as package

    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def family(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.cases.{name}")


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Random weights under which everything matters; many classes start position tables and scales at 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    noise = lambda t: torch.randn(t.shape, generator=generator).to(t.dtype)  # noqa: E731
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point() or not parameter.numel() or "logit" in name or "temperature" in name:
                continue
            if any(word in name for word in ("pos", "token", "regist", "query", "queries", "table", "dist")):
                parameter.copy_(noise(parameter) * 0.5)
            elif parameter.dim() >= 2 and "norm" not in name:
                parameter.copy_(noise(parameter) / math.sqrt(max(1, parameter[0].numel())))
            elif name.endswith("bias"):
                parameter.copy_(noise(parameter) * 0.1)
            else:
                parameter.copy_(1 + 0.1 * noise(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(noise(buffer) * 0.3)
            elif name.endswith("running_var"):
                buffer.copy_(noise(buffer).abs() * 0.3 + 0.7)
    return model.eval()


def accepts(model: nn.Module, args: Args) -> bool:
    """Whether eager PyTorch itself runs the model on these arguments."""
    try:
        with torch.no_grad():
            model(*copy.deepcopy(args))
    except Exception:
        return False
    return True


def at_sizes(
    model: nn.Module,
    make: Callable[[int, tuple[int, ...]], Args],
    native: tuple[int, ...],
    others: Sequence[tuple[int, ...]],
    names: Sequence[str],
    *,
    example: tuple[int, ...] | None = None,
    tolerance: float = 1e-3,
) -> Case:
    """A case whose first argument is (batch, ..., *size): batch always dynamic, a size where eager takes another one.

    make: (batch, size) to the arguments; those after the first have a dynamic batch only.
    native: the size the model was made for; others: candidates, of which those that eager refuses are dropped.
    names: one per entry of a size, the last dimensions of the first argument.
    example: the size exported from; the first accepted one that is not square when left out, else the native one.
    """
    model.eval()
    accepted = [size for size in others if accepts(model, make(2, size))]
    example = example or next((size for size in accepted if len(size) > 1 and size[-1] != size[-2]), native)
    rest = [size for size in (native, *accepted) if size != example]
    args = make(2, example)
    first = args[0].dim() - len(names)
    dynamic = {first + i: n for i, n in enumerate(names) if any(s[i] != t[i] for s in rest for t in (example, *rest))}
    shapes = ({0: "batch", **dynamic}, *({0: "batch"} for _ in args[1:]))
    inputs = [args, make(3, example), *(make(2, size) for size in rest[:3]), make(1, example)]
    return Case(model, inputs, shapes, tolerance, native=None if example == native else 2)


def image(
    model: nn.Module,
    native: tuple[int, int] = (32, 32),
    others: Sequence[tuple[int, int]] = ((32, 48), (48, 32), (24, 40), (16, 32), (64, 64)),
    **options: Any,
) -> Case:
    """An image model (batch, 3, height, width)."""
    return at_sizes(
        randomise(model), lambda n, s: (torch.randn(n, 3, *s),), native, others, ("height", "width"), **options
    )


def video(
    model: nn.Module,
    native: tuple[int, int, int] = (4, 32, 32),
    others: Sequence[tuple[int, int, int]] = ((2, 32, 32), (4, 32, 48), (4, 16, 32), (6, 32, 32)),
    **options: Any,
) -> Case:
    """A video model (batch, 3, frames, height, width)."""
    make = lambda n, s: (torch.randn(n, 3, *s),)  # noqa: E731
    return at_sizes(randomise(model), make, native, others, ("frames", "height", "width"), example=native, **options)
