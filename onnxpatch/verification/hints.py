"""Collects sizes that a model mentions: its training size, its strides, constants that its forward compares with."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeVar

import torch

from onnxpatch.verification.asked_numbers import Asked, asked
from onnxpatch.verification.looked_up import looked_up
from onnxpatch.verification.own_code import own_code

# By the names of attributes, since nothing else tells a size from the other numbers of a model.
_NATIVE = re.compile(r"(im(age|g)?_?size|input|native|train|resol|grid|max|len|context|seq|feat.*size|win|res$)")
_STEP = re.compile(r"(patch|stride|window|win_?size|block|chunk|segment|factor|scale|hop|group_size|pool)")
_IDENTIFIER = re.compile(r"(^|_)(token|pad|bos|eos|sep|cls|mask|special|image|ignore)(_?token)?(_?(id|index|idx))?$")
_LARGEST = 4096
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class SizeHints:
    """Sizes and values that a model mentions.

    native: sizes to try as they are. steps: strides and patch sizes; sizes may have to be multiples of them.
    thresholds: constants that code compares with. values: numbers that data may be compared with, such as token ids.
    looked_up: keys of tables, and texts made of sizes: `self.steps[n]`, `f"{h}x{w}" == "16x12"`. asked: what stands
    beside comparisons in the code.
    """

    native: tuple[int, ...]
    steps: tuple[int, ...]
    thresholds: tuple[int, ...]
    values: tuple[float, ...] = ()
    looked_up: tuple[tuple[int, ...], ...] = ()
    asked: Asked = field(default_factory=Asked)


def size_hints(model: torch.nn.Module, most: int = 8) -> SizeHints:
    """The hints in attributes, configs, position tables and the constants in the code of the user's classes."""
    if not isinstance(model, torch.nn.Module):
        return SizeHints((), (), ())
    steps = _named(model, _STEP, 64)
    native = _named(model, _NATIVE, _LARGEST)
    native.update(_grids(model, steps))
    constants = Counter(c for code in own_code(model) for c in _constants(code))
    thresholds = Counter({c: n for c, n in constants.items() if isinstance(c, int) and 1 < c <= _LARGEST})
    values = Counter({c: n for c, n in constants.items() if abs(c) > 1 or c != int(c)})
    # Counted 100 times, so that token ids come before the constants of the code.
    values.update({float(n): 100 for n in _identifiers(model)})
    keys = tuple(itertools.islice(dict.fromkeys(looked_up(model)), most))
    values.update({float(key[0]): 50 for key in keys if len(key) == 1})
    return SizeHints(
        _top(native, most), _top(steps, most), _top(thresholds, most), _top(values, most), keys, asked(model)
    )


def _named(model: torch.nn.Module, names: re.Pattern[str], largest: int) -> Counter[int]:
    """The sizes in attributes with such names."""
    found = (value for module in model.modules() for name, value in _attributes(module) if names.search(name))
    return Counter(n for value in found for n in _whole(value) if 1 < n <= largest)


def _identifiers(model: torch.nn.Module) -> Iterator[int]:
    """Ints in attributes named after a token: `pad_token_id`, `eos`."""
    for module in model.modules():
        for name, value in _attributes(module):
            if _IDENTIFIER.search(name):
                yield from _whole(value)


def _top(counts: Counter[Number], most: int) -> tuple[Number, ...]:
    return tuple(n for n, _ in counts.most_common(most))


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        # Hugging Face's models have their sizes in a config object, not in attributes.
        if name == "config" and hasattr(value, "__dict__"):
            yield from vars(value).items()
        elif not name.startswith("_"):
            yield name, value


def _whole(value: object) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple | list) and len(value) <= 4:
        for inner in value:
            yield from _whole(inner)


def _grids(model: torch.nn.Module, steps: Iterable[int]) -> Iterator[int]:
    """Image sides in pixels that a position table fits: a square grid (and a few extra tokens) times the patch size."""
    # Without the last axis, which is the width of the embedding.
    for length in {max(table.shape[:-1]) for table in _tables(model)}:
        side = int(length**0.5)
        if side >= 2 and length - side * side <= 5:
            yield from (side * step for step in steps if side * step <= _LARGEST)
        yield length


def _tables(model: torch.nn.Module) -> list[torch.Tensor]:
    """Position tables: by name, or by the shape (1, length, width) of a parameter in a class that is not torch's."""
    found: list[torch.Tensor] = []
    for module in model.modules():
        own = type(module).__module__.split(".")[0] != "torch"
        for name, table in (*module._parameters.items(), *module._buffers.items()):
            if table is None or table.dim() < 2:
                continue
            if "pos" in name.lower() or (own and table.dim() in (3, 4) and table.shape[0] == 1):
                found.append(table)
    return found[:16]


def _constants(code: CodeType) -> Iterator[float]:
    return (c for c in code.co_consts if isinstance(c, int | float) and not isinstance(c, bool) and math.isfinite(c))
