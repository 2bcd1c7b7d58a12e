"""Finds sizes at which ONNX's nearest resizing picks other neighbours than PyTorch.

    F.interpolate(x, size=(50, 50))      x of 17 x 17 or 60 x 60: the same; of 45 x 45 or 182 x 182: other neighbours

`onnxpatch.formulas.nearest` says why. It is one pair of sizes in thirty, which other probes seldom meet.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxpatch.formulas.nearest import runtime_agrees
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.size_recorder import SizeWatch

_FURTHEST = 512
_MOST = 2  # pairs of sizes
_TRIES = 4  # sizes tried for one of them


def resized_sizes(oracle: Oracle, sizes: SizeWatch) -> Iterator[Probe]:
    """A probe at such a size, for the first axes that eager resized.

    How the two sizes follow from the inputs' is not known. Tried is that one of them does, and the other stays.
    """
    for before, after in list(sizes.resized)[:_MOST]:
        wishes = (wish for dim in oracle.dims for wish in _wishes(dim, before, after))
        probes = (oracle.at(wish, far=True) for _, wish in zip(range(_TRIES), wishes, strict=False))
        yield from filter(None, [next(filter(None, probes), None)])


def _wishes(dim: DynamicDim, before: int, after: int) -> Iterator[dict[str, int]]:
    """The smallest sizes of `dim` for which the neighbours differ: as the input's size, and as the output's."""
    ranges = range(2, _FURTHEST)
    if before and dim.size % before == 0:
        step = dim.size // before
        yield from ({dim.name: n * step} for n in ranges if not runtime_agrees(n, after))
    elif after and dim.size % after == 0:
        step = dim.size // after
        yield from ({dim.name: n * step} for n in ranges if not runtime_agrees(before, n))
