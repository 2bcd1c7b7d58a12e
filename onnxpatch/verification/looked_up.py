"""The numbers by which a model looks something up: keys of its tables, members of its sets, texts made of numbers.

self.steps[x.shape[0]]             a dict; also of layers: self.heads[f"n{n}"]
ids[0, 0].item() in self.stop      a set
f"{h}x{w}" == "16x12"              text in the code
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from types import CodeType

import torch

from onnxpatch.verification.own_code import own_classes, own_code

# Short, and nothing but a word and one or two numbers: no pattern of einops, no message.
_TEXT = re.compile(r"[A-Za-z_]{0,6}(\d+)(?:[x*,:_ -]{1,2}(\d+))?")
_MOST = 32  # keys of a table: with more they are a vocabulary


def looked_up(model: torch.nn.Module) -> Iterator[tuple[int, ...]]:
    """Each key as its numbers: (12,) or (16, 12)."""
    own = set(own_classes(model))
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleDict | torch.nn.ParameterDict):
            yield from _keys(module.keys())
        elif type(module) in own:
            tables = (value for name, value in vars(module).items() if not name.startswith("_"))
            yield from (key for one in tables if isinstance(one, dict | set | frozenset) for key in _keys(one))
    for code in own_code(model):
        yield from _in_code(code)


def _keys(table: Iterable[object]) -> Iterator[tuple[int, ...]]:
    keys = list(table)
    if len(keys) <= _MOST:
        yield from filter(None, map(_numbers, keys))


def _in_code(code: CodeType) -> Iterator[tuple[int, ...]]:
    # The first constant may be the docstring. `x in {"8x8", "16x12"}` holds a frozenset.
    for constant in code.co_consts:
        if isinstance(constant, frozenset):
            yield from filter(None, map(_numbers, sorted(constant, key=str)))
        elif isinstance(constant, str):
            yield from filter(None, [_numbers(constant)])
        elif isinstance(constant, CodeType):
            yield from _in_code(constant)


def _numbers(key: object) -> tuple[int, ...]:
    if isinstance(key, int) and not isinstance(key, bool):
        return (key,)
    if isinstance(key, tuple) and 0 < len(key) <= 2 and all(type(one) is int for one in key):
        return key
    found = _TEXT.fullmatch(key) if isinstance(key, str) and len(key) <= 16 else None
    return tuple(int(group) for group in found.groups() if group) if found else ()
