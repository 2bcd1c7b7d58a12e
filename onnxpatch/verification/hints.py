"""Sizes that a model itself mentions: those it was trained at, its strides, the numbers its forward compares with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

_NATIVE = re.compile(r"(im(age|g)?_?size|input|native|train|resol|grid|max|len|context|seq|feat.*size|win|res$)")
_STEP = re.compile(r"(patch|stride|window|win_?size|block|chunk|segment|factor|scale|hop|group_size|pool)")
_LARGEST = 4096


@dataclass(frozen=True)
class SizeHints:
    """native: sizes to try as they are; steps: what sizes may be multiples of; thresholds: what code compares with."""

    native: tuple[int, ...]
    steps: tuple[int, ...]
    thresholds: tuple[int, ...]


def size_hints(model: Any, most: int = 8) -> SizeHints:
    """Read off attributes, configs, position tables and the constants in the forwards of the model's own classes."""
    if not isinstance(model, torch.nn.Module):
        return SizeHints((), (), ())
    native: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    for module in model.modules():
        for name, value in _attributes(module):
            if _STEP.search(name):
                steps.update(n for n in _whole(value) if 1 < n <= 64)
            if _NATIVE.search(name):
                native.update(n for n in _whole(value) if 1 < n <= _LARGEST)
    native.update(_grids(model, steps))
    thresholds = Counter(c for cls in _own_classes(model) for c in _constants(cls) if 1 < c <= _LARGEST)
    return SizeHints(_top(native, most), _top(steps, most), _top(thresholds, most))


def _top(counts: Counter[int], most: int) -> tuple[int, ...]:
    return tuple(n for n, _ in counts.most_common(most))


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if name == "config" and hasattr(value, "__dict__"):
            yield from vars(value).items()
        elif not name.startswith("_"):
            yield name, value


def _whole(value: Any) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple | list) and len(value) <= 4:
        for inner in value:
            yield from _whole(inner)


def _grids(model: torch.nn.Module, steps: Iterable[int]) -> Iterator[int]:
    """Image sides that a table of positions was made for: a square grid, up to a few extra tokens, times the patch."""
    for length in {max(table.shape[:-1]) for table in _tables(model)}:
        side = int(length**0.5)
        if side >= 2 and length - side * side <= 5:
            yield from (side * step for step in steps if side * step <= _LARGEST)
        yield length


def _tables(model: torch.nn.Module) -> list[torch.Tensor]:
    """Tables of positions by their name, or by their form: (1, length, width) held by a class that is not torch's."""
    found: list[torch.Tensor] = []
    for module in model.modules():
        own = type(module).__module__.split(".")[0] != "torch"
        for name, table in (*module._parameters.items(), *module._buffers.items()):
            if table is None or table.dim() < 2:
                continue
            if "pos" in name.lower() or (own and table.dim() in (3, 4) and table.shape[0] == 1):
                found.append(table)
    return found[:16]


def _own_classes(model: torch.nn.Module) -> set[type]:
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    return {c for c in classes if c.__module__.split(".")[0] not in ("torch", "builtins", "abc")}


def _constants(cls: type) -> Iterator[int]:
    """Whole numbers in forward and in the methods of the same class that it names."""
    code = getattr(vars(cls).get("forward"), "__code__", None)
    if code is None:
        return
    called = [getattr(vars(cls).get(name), "__code__", None) for name in code.co_names if name in vars(cls)]
    for one in (code, *called):
        if isinstance(one, CodeType):
            yield from (c for c in one.co_consts if isinstance(c, int) and not isinstance(c, bool))
