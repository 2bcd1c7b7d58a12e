"""`Probe`: one input with eager's answer. `Budget`: how much may be compared.

At other sizes, inputs are filled with values like the example's, or with its own. Integers are adapted: for x of 20
steps and `lengths = [20, 13]`, a probe of 25 steps needs lengths up to 25: [25, 16]. What a tensor means is guessed
from the example: its largest value, its sum, or one of them plus or minus 1, equals a size.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from onnxpatch.decisions.sides_taken import Taken
from onnxpatch.errors import InputError
from onnxpatch.limits import checked_bytes
from onnxpatch.onnxfile.runtimes.interface import DEFAULT_SECONDS

_LEAST_BYTES = 512e6  # that one run may take in any case
_MOST_BYTES = 2e9  # that it may take unless the example comes near: beside the rest of an export, it suits 8 GB
_TIMES = 16  # what the example takes
_ROOM = 1.5  # for other data, where the example itself takes more
_MOST_CALLS = (100, 100_000)  # of operators: times the example's, and more


@dataclass(eq=False)
class Probe:
    """One input with eager's answer. kind: example, data, size, branch, given or guard.

    exact: the values are chosen exactly, as 7 for `x == 7`. A difference at such a probe is not excused by eager's
    answer to inputs moved by a rounding. taken: the sides of its own conditions that eager took. empty: more
    operators gave a tensor of no elements than for the example.
    """

    label: str
    kind: str
    sizes: dict[str, int]
    values: list[Any]
    expected: tuple[torch.Tensor | None, ...]
    raw: Any = None
    exact: bool = False
    taken: Taken | None = None
    empty: bool = False


@dataclass(frozen=True)
class Budget:
    """How much may be compared. It counts work, not seconds, so that the verdict is the same on every machine.

    probes: inputs compared. Other data, branches and dropped guards come on top.
    questions: runs of eager in the search for probes. operations: arithmetic in these runs, by `_torch.dispatch_modes`;
    4e10 take about a second on one core. bytes: of the inputs and answers that are kept. tries: sizes of one dimension
    that are run even if the budget is used up, until eager accepts one.
    max_seconds: the user's limit, counted from `start` (time.monotonic()). Half of it is for the search for probes.
    max_memory: the user's limit of bytes for one run, beside what the process has already.
    """

    probes: int = 16
    questions: int = 72
    operations: float = 3.2e10
    bytes: int = 512 * 1024 * 1024
    tries: int = 6
    max_seconds: float | None = None
    max_memory: float | None = None
    start: float = 0.0

    @classmethod
    def starting_now(
        cls, probes: int, max_seconds: float | None = None, max_memory: float | str | None = None
    ) -> Budget:
        """A budget whose time starts now. Raises InputError if max_seconds is not a positive number, or max_memory not
        a number of bytes."""
        most = checked_bytes(max_memory)
        if max_seconds is None:
            return cls(probes, max_memory=most)
        if isinstance(max_seconds, bool) or not isinstance(max_seconds, int | float) or not max_seconds > 0:
            raise InputError(f"max_seconds={max_seconds!r}: give the seconds that the whole may take, or None")
        return cls(probes, max_seconds=max_seconds, max_memory=most, start=time.monotonic())

    def limits(self, example: int, calls: int) -> tuple[float, float]:
        """(bytes, calls of operators) that one run may take. example, calls: what the example takes."""
        usual = max(_ROOM * example, min(_MOST_BYTES, max(_LEAST_BYTES, _TIMES * example)))
        return self.max_memory or usual, _MOST_CALLS[0] * calls + _MOST_CALLS[1]

    def over(self, share: float = 1.0) -> bool:
        """Whether max_seconds, or this share of it, is over. False without a limit."""
        return self.max_seconds is not None and time.monotonic() > self.start + share * self.max_seconds

    @property
    def run_seconds(self) -> float:
        """How many seconds one run of a graph may take."""
        return DEFAULT_SECONDS if self.max_seconds is None else self.max_seconds

    @property
    def seconds_left(self) -> float | None:
        """The rest of max_seconds; None without a limit."""
        if self.max_seconds is None:
            return None
        return max(0.0, self.start + self.max_seconds - time.monotonic())


Relation = Literal["sum", "largest", "largest + 1", "largest - 1"]
Moves = Sequence[tuple[int, int]]
"""(size in the example, size wanted) of every dimension that may change, those that stay as they are included."""

_ROW = 1 << 16  # elements that are examined: lengths and offsets are short


def follows(example: torch.Tensor, moves: Moves) -> tuple[Relation, int] | None:
    """(how the values relate to a size of the example, that size in the probe); None if they relate to none."""
    if not _counts(example) or bool((example == 1).all()):  # ones are as many as there are, at every size
        return None
    total, largest = int(example.sum()), int(example.max())
    # Zeros and ones along more than two places are a mask, and no indices of two.
    is_mask = largest == 1 and example.dim() > 0 and example.shape[-1] > 2
    # Products too: a tensor of offsets may count the elements of two flattened axes.
    pairs = [*moves, *((a * c, b * d) for (a, b), (c, d) in itertools.combinations(moves, 2))]
    meanings: Sequence[tuple[Relation, int]] = (
        ("sum", total), ("largest", largest), ("largest + 1", largest + 1), ("largest - 1", largest - 1),
    )  # fmt: skip
    for relation, value in meanings:
        for old, new in pairs:
            # Not size 1, which any mask with a single 1 would match; nor the sum of one element, which is its largest
            # too.
            told = example.numel() > 1 if relation == "sum" else not (is_mask and relation == "largest + 1")
            if value == old and old > 1 and told:
                return relation, new
    return None


def resized_ints(example: torch.Tensor, shape: Sequence[int], moves: Moves) -> torch.Tensor:
    """The example's ints at another shape, with the same relation to the new sizes.

    Values that rise along an axis (offsets, positions) keep their ends and are spread between them. Others are repeated
    in order, so that a mask of leading ones stays one.
    """
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    relation = follows(example, moves)
    # Ints up to 2^53 are exact in float64, and values between two of them can be computed.
    out = example.detach().double()
    for axis, size in enumerate(shape):
        if out.shape[axis] != size:
            out = _resized(out, axis, size)
    if relation is not None and out.numel():
        how, wanted = relation
        out = _FITS[how](out, int(example.sum() if how == "sum" else example.max()), wanted)
    return out.round().to(example.dtype).to(example.device)


def _counts(value: torch.Tensor) -> bool:
    whole = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
    return whole and 0 < value.numel() <= _ROW and int(value.min()) >= 0


def _resized(values: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    old = values.shape[axis]
    steps = values.diff(dim=axis)
    place = torch.arange(size, dtype=torch.float64, device=values.device)
    if size > 1 and old > 1 and bool((steps >= 0).all()) and bool((steps > 0).any()):
        place = place * (old - 1) / (size - 1)
        # The last place has a neighbour on its left only.
        low = place.floor().long().clamp(max=old - 2)
        part = (place - low).reshape([-1 if a == axis else 1 for a in range(values.dim())])
        return values.index_select(axis, low) * (1 - part) + values.index_select(axis, low + 1) * part
    return values.index_select(axis, (place * old / size).floor().long().clamp(max=old - 1))


def _to_sum(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    """Ints in the same proportion with the sum `wanted`. Values other than 0 stay so where possible."""
    total = float(values.sum())
    shared = (values * (wanted / total)).floor() if total else torch.zeros_like(values)
    if wanted >= values.numel():
        shared = shared.maximum((values > 0).double())
    flat = shared.reshape(-1)
    # What was lost by rounding down goes to the largest, where it changes least.
    largest = int(flat.argmax())
    flat[largest] = max(0.0, float(flat[largest]) + wanted - float(flat.sum()))
    return flat.reshape(values.shape)


def _to_largest(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    scaled = (values * (wanted / now)).round().clamp(max=wanted)
    if wanted >= 1:
        scaled = scaled.maximum((values > 0).double())
    if float(scaled.max()) < wanted:  # the row with the largest value was cut off
        flat = scaled.reshape(-1)
        flat[int(flat.argmax())] = wanted
    return scaled


def _to_last_index(values: torch.Tensor, now: int, wanted: int) -> torch.Tensor:
    if now == 0:
        return values
    return (values * ((wanted - 1) / now)).round().clamp(0, wanted - 1)


_FITS: dict[Relation, Callable[[torch.Tensor, int, int], torch.Tensor]] = {
    "sum": _to_sum,
    "largest": _to_largest,
    "largest + 1": _to_last_index,
    "largest - 1": lambda values, now, wanted: _to_largest(values, now, wanted + 1),
}


def measures(value: object) -> bool:
    """Whether a value is a tensor of floats with fractions, which count nothing and mark nothing."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool((value != value.round()).any())


Fill = Callable[[torch.Tensor, Sequence[int], torch.Generator, Moves], torch.Tensor]


def drawn(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """Random values with the example's dtype, range and sign; ints if it has ints."""
    if example.numel() == 0:
        # An empty example has no values to draw from.
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    # On the CPU, whose generator gives the same numbers on every machine.
    flat = example.detach().reshape(-1).cpu()
    count = math.prod(shape)
    # From the example's own values: what is an index or a token id there stays a valid one.
    values = flat[torch.randint(0, flat.numel(), (count,), generator=generator, device="cpu")]
    if flat.is_floating_point():
        values = _varied(flat, values, generator)
    values = values.reshape(tuple(shape))
    # Bins and times are sorted: eager's answer is not defined for others.
    order = _order(example)
    return (values if order is None else values.sort(-1, descending=order < 0).values).to(example.device)


def _order(example: torch.Tensor) -> int | None:
    """1 where the values rise along the last axis, -1 where they fall; None for others, and for fewer than 5."""
    if example.dim() == 0 or example.shape[-1] < 5 or example.is_complex() or example.dtype == torch.bool:
        return None
    steps = example.detach()[..., 1:] >= example.detach()[..., :-1], example[..., 1:] <= example[..., :-1]
    rises, falls = (bool(step.all()) for step in steps)
    return None if rises == falls else 1 if rises else -1


def _varied(flat: torch.Tensor, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values in the example's range. Zeros or ones are a dummy example: any float will do. Ints may be ids: kept."""
    noise = torch.rand(values.shape, generator=generator, device="cpu").to(values.dtype)
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        return noise if float(flat[0]) in (0.0, 1.0) else values * (0.75 + noise / 2)
    if bool((flat == flat.round()).all()):
        return values
    known = flat[~flat.isnan()]
    # Not beyond the example's: an image in [0, 1] that leaves it may be refused.
    return (values * (0.95 + noise / 10)).clamp(*known.aminmax()) if known.numel() else values


def tiled(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """The example, cut or repeated along each axis. Keeps order, one-hot rows, masks and positions."""
    out = example.detach()
    for axis, size in enumerate(shape):
        if out.shape[axis] != size and out.shape[axis]:
            out = out.index_select(axis, torch.arange(size, device=out.device) % out.shape[axis])
    return out.clone()


def fitted(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """As `tiled`, with ints below the smallest new size: indices and lengths must fit a smaller tensor."""
    out = tiled(example, shape, generator)
    changed = [size for size, old in zip(shape, example.shape, strict=True) if size != old]
    if changed and not (out.is_floating_point() or out.is_complex()) and out.dtype != torch.bool:
        out = out.clamp(max=max(0, min(changed) - 1))
    return out


def following(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()
) -> torch.Tensor:
    """Ints, bools and masks as `resized_ints` makes them, so that lengths fit the new sizes; others as `drawn`."""
    if example.is_complex() or measures(example):
        return drawn(example, shape, generator)
    return resized_ints(example, shape, moves)


def fills(values: Sequence[torch.Tensor], moves: Moves) -> Sequence[Fill]:
    """Ways to fill the inputs at other sizes; those that eager will probably accept come first.

    Lengths and offsets of something that changes its size change with it.
    """
    if all(map(measures, values)):
        return (drawn,)  # no values that depend on a size
    if any(follows(value, moves) for value in values):
        return following, drawn, tiled, fitted
    return drawn, tiled, fitted, following
