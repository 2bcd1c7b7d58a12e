"""Makes inputs whose elements relate to each other, which random data never does.

(ids.diff() > 0).all()            rising numbers
torch.allclose(x, x.mT)           a symmetric matrix
torch.allclose(x.sum(-1), one)    rows that sum up to one
(y > x).all()                     one input above the other
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_LONGEST = 1 << 20  # elements of an input that is changed
Change = Callable[[torch.Tensor], torch.Tensor]


def structured(values: Sequence[object]) -> Iterator[tuple[str, list[Any]]]:
    """(label, leaves): the values with their elements put into relation."""
    for label, change in _FLOATS.items():
        yield label, [change(v) if _is_float(v) else v for v in values]  # type: ignore[arg-type]
    for label, change in _INTS.items():
        yield label, [change(v) if _is_whole(v) else v for v in values]  # type: ignore[arg-type]
    yield from _pairs(values)


def _pairs(values: Sequence[object]) -> Iterator[tuple[str, list[Any]]]:
    """Two inputs of one shape, the second made from the first."""
    usable = [(i, v) for i, v in enumerate(values) if _is_float(v) or _is_whole(v)]
    for (i, a), (j, b) in itertools.islice(itertools.combinations(usable, 2), 3):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype:
            for label, change in _PAIRS.items():
                yield f"input {j} {label} input {i}", [change(a) if k == j else v for k, v in enumerate(values)]


def is_dull(values: Sequence[object], outputs: Sequence[torch.Tensor | None]) -> bool:
    """Whether outputs may be equal on another branch, too: all inputs are alike, or outputs are 0 or not finite."""
    floats = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel()]
    if floats and all(bool((v == v.reshape(-1)[0]).all()) for v in floats):
        return True
    found = [o for o in outputs if o is not None and o.numel()]
    return bool(found) and all(not bool(o.any()) or not bool(torch.isfinite(o).all()) for o in found)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and _is_small(value)


def _is_whole(value: object) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype == torch.bool:
        return False
    return not value.is_floating_point() and not value.is_complex() and _is_small(value)


def _is_small(value: torch.Tensor) -> bool:
    return value.dim() > 0 and 1 < value.numel() <= _LONGEST


def _sorted(x: torch.Tensor) -> torch.Tensor:
    return x.sort(-1).values


def _falling(x: torch.Tensor) -> torch.Tensor:
    return x.sort(-1, descending=True).values


def _alike(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand_as(x).clone()


def _square(x: torch.Tensor) -> bool:
    return x.dim() > 1 and x.shape[-1] == x.shape[-2]


def _symmetric(x: torch.Tensor) -> torch.Tensor:
    return (x + x.mT) / 2 if _square(x) else (x + x.flip(-1)) / 2


def _orthogonal(x: torch.Tensor) -> torch.Tensor:
    return torch.eye(x.shape[-1]).flip(0).expand_as(x).to(x) if _square(x) else x


def _counted(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[-1], device=x.device).to(x.dtype).expand_as(x).clone()


def _in_turn(x: torch.Tensor, kinds: int) -> torch.Tensor:
    known = x.unique()[:kinds]
    return known[torch.arange(x.numel(), device=x.device) % known.numel()].reshape(x.shape)


_FLOATS: dict[str, Change] = {
    "absolute values": torch.abs,
    "absolute values negated": lambda x: -x.abs(),
    "elements in order": _sorted,
    "elements falling": _falling,
    "rows all alike": _alike,
    "symmetric": _symmetric,
    "an orthogonal matrix": _orthogonal,
    "rows that sum up to one": lambda x: x.double().softmax(-1).to(x.dtype),
    "rows of length one": lambda x: torch.nn.functional.normalize(x.double(), dim=-1).to(x.dtype),
    "elements rounded": lambda x: (3 * x).round(),
    "elements between zero and one": lambda x: x.double().sigmoid().to(x.dtype),
    "zeros and ones": lambda x: (x > 0).to(x.dtype),
}

_INTS: dict[str, Change] = {
    "whole numbers in order": _sorted,
    "whole numbers falling": _falling,
    "whole numbers counted from 0": _counted,
    "whole numbers all alike": lambda x: _in_turn(x, 1),
    "two whole numbers in turn": lambda x: _in_turn(x, 2),
    "three whole numbers in turn": lambda x: _in_turn(x, 3),
}

_PAIRS: dict[str, Change] = {
    "the negative of": lambda x: -x,
    "above": lambda x: x + 1,
    "below": lambda x: x - 1,
}
