"""What several sizes are at other sizes of the inputs: private torch APIs, and what if they move.

A rule such as "this size is twice that one" may hold for the example by chance. Sizes have expressions in the symbols
of the declared dimensions, and these are given other numbers:

    y.shape[2] is 2*h, x.shape[2] is h      (20, 10), (2, 1), (34, 17) ...
    y.shape[2] is k,   x.shape[2] is h      (20, 10), (57, 3), (8, 31) ...

A SymInt's sympy expression (`.node.expr`, `ShapeEnv.replace`) is used, and under torch.jit.trace the sizes that
`traced_sizes` computes again. Where one of them has moved, nothing is known, and callers take the form for any size.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnxpatch._torch.symbolic_sizes import symbolic_number

_SAMPLES = 40
_LARGEST = 300


def sampled_sizes(sizes: Sequence[int | torch.SymInt | torch.Tensor]) -> list[tuple[int, ...]] | None:
    """The values that `sizes` take together for some 40 sizes of the inputs, all at least 1; None if unknown.

    sizes: int, SymInt, or 0-d tensors of the running trace.
    """
    try:
        return list(_sampled([_expression(size) for size in sizes]))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _expression(size: int | torch.SymInt | torch.Tensor) -> Any:
    number = symbolic_number(size) if isinstance(size, torch.Tensor) else size
    if isinstance(number, torch.SymInt):
        return number.node.shape_env.replace(number.node.expr)
    if not isinstance(number, int):
        raise TypeError(f"not a size: {size}")
    return number


def _sampled(expressions: list[Any]) -> Iterator[tuple[int, ...]]:
    symbols = sorted(set().union(*(getattr(one, "free_symbols", ()) for one in expressions)), key=str)
    chosen = random.Random(0)
    for number in range(_SAMPLES if symbols else 1):
        # Small sizes too: there what is rounded differs most.
        largest = (8, 40, _LARGEST)[number % 3]
        at = {symbol: chosen.randint(1, largest) for symbol in symbols}
        values = tuple(one if isinstance(one, int) else int(one.subs(at)) for one in expressions)
        if min(values) >= 1:
            yield values
