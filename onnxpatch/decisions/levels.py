"""The levels of values: how much of a value an input of the model decides.

FIXED: nothing. TENSOR: its data and sizes, but neither its type nor whether it is there. HELD: a container of such
tensors, and SIZES: one of numbers, both of fixed length. NUMBER: its value. ANY: also whether it is there at all.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence

FIXED, HELD, TENSOR, SIZES, NUMBER, ANY = range(6)


def element(level: int) -> int:
    """The level of what is taken out of a container."""
    return {HELD: TENSOR, SIZES: NUMBER}.get(level, level)


def held(levels: Iterable[int]) -> int:
    """The level of a container of fixed length with such values."""
    level = max(levels, default=FIXED)
    return {TENSOR: HELD, NUMBER: SIZES}.get(level, level)


def merged(levels: Sequence[tuple[int, bool, ast.AST | None]]) -> int:
    """The level of what has one of several values.

    levels: of each its level, whether an input decides that it is this one, and the value itself.
    """
    level = max((one for one, _, _ in levels), default=FIXED)
    if len(levels) > 1 and any(turned for _, turned, _ in levels):
        none = any(isinstance(value, ast.Constant) and value.value is None for _, _, value in levels)
        kinds = {one for one, _, _ in levels}
        if none or (FIXED in kinds and kinds & {HELD, TENSOR}):
            return ANY
        return level if kinds <= {HELD, TENSOR} else max(level, NUMBER)
    return level


def lowered(level: int, kinds: Collection[str]) -> int:
    """The level of a value, where it is known of which kinds it was."""
    if level in (HELD, TENSOR, SIZES) and kinds and set(kinds) <= {"plain", "module"}:
        return FIXED  # no tensor, and no number of one either
    if level in (TENSOR, SIZES, NUMBER) and kinds and not set(kinds) & {"tensor", "plain"}:
        return HELD
    return level


def of_kinds(kinds: Collection[str], unknown: bool = False) -> int:
    """The level of what came from outside, by what it was. unknown: a number of it may be computed from an input."""
    if "tensor" in kinds or "container" in kinds:
        return TENSOR if "tensor" in kinds else HELD
    return NUMBER if unknown and "plain" in kinds else FIXED
