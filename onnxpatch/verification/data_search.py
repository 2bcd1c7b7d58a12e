"""Searches data for which a forward takes another branch than at the example, and has the data that is always tried.

    if x.sum() > 0: ...            other data of the same sign takes the same branch; x negated does not
    x[mask] = 0                    no branch, but other masks may be wrong: some are always tried
    if (x == 7).any(): ...         data with a 7

One maker a row: it yields the data to try, likely ones first, and none where the example's record does not ask for it.
Each is run in eager once, recorded, and kept as a probe if it takes a side of a condition, or converts to a number,
that no other one did.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from onnxpatch.verification.aimed_data import multiples, planted, steered
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.data_variants import MASKED, NON_FINITE, counts_or_marks, is_dull, variants
from onnxpatch.verification.eager import Answer
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

_TRIES = 4  # other data tried for a branch, even beyond the budget
_BRANCHES = 12  # inputs that take another branch
_QUICK_BRANCHES = 40  # the same for a forward that takes no time
_ROWS = 3  # of constants in the code
_PATIENCE = 6  # other data tried once each bool has been both
_LONG_PATIENCE = 20  # and where one has not, in a forward that takes time
_REFUSED = 2  # times that eager refuses a value, after which it is not planted anywhere else

# Ints and bools are indices and masks: a graph may be wrong for other ones without any branch.
_ALWAYS = ("whole numbers + 1", "flags flipped", MASKED)
_MORE = (
    "whole numbers zero", "whole numbers negated", "whole numbers reversed", "whole numbers exchanged",
    "whole numbers below zero",
    "flags all set", "no flag set",
)  # fmt: skip
_ZEROS = "zeros"
_OUTSIDE = ("negated", "alternating signs")  # of what roots and logarithms take


Ran = TypeVar("Ran")


class _DataCandidate(NamedTuple):
    """Data to try. exact: it has values that were chosen exactly. always: it is compared in any case. planted: what was
    put into it."""

    label: str
    values: list[Any]
    exact: bool = False
    always: bool = False
    planted: object = None


def data_probes(oracle: Oracle, first: Probe, example: Decisions) -> list[Probe]:
    """Probes with data at which the forward takes another branch, or a graph may be wrong without one.

    first: the example. example: the branches that eager takes there; empty for a forward that could not be watched.
    """
    return list(_DataSearch(oracle, first, example).probes())


class _DataSearch:
    """The search for data at which one forward takes another branch. Half of the budget is left for sizes.

    Ints, bools, masks, exact multiples of steps, and zeros in divisions are varied even without another branch.
    """

    def __init__(self, oracle: Oracle, first: Probe, example: Decisions) -> None:
        self.oracle, self.first, self.values, self.example = oracle, first, first.values, example
        self.signatures: set[object] = {self.example.signature}
        # Without a conversion to Python no data can take another branch, and runs that record them are saved.
        self.decides = example.decides
        # Where random numbers reach the output of the example, comparing that shows them.
        self.draws = oracle.eager.draws and not _by_chance(oracle, first.values, first.expected)
        self.most = _QUICK_BRANCHES if self.example.quick else _BRANCHES
        self.tried, self.flipped = 0, False
        self.sides, self.idle = set(self.example.sides), 0
        self.refused: Counter[object] = Counter()

    def probes(self) -> Iterator[Probe]:
        """Each is run when it is requested."""
        labels: set[str] = set()
        for one in self._candidates():
            if not self._goes_on():
                return
            refused = self.refused[one.planted] >= _REFUSED
            if one.label in labels or refused or equal_values(one.values, self.values):
                continue
            labels.add(one.label)
            probe = self._tried(one)
            if probe is not None:
                self.most -= 1
                yield probe

    def _goes_on(self) -> bool:
        # Beyond the budget a few are tried still, until one takes another branch: else no branch would be compared.
        room = self.spare or (not self.flipped and self.tried < _TRIES)
        return self.most > 0 and room and not self.oracle.late

    @property
    def spare(self) -> bool:
        """Whether the budget has room."""
        return not self.oracle.used_up and not self.oracle.half_spent

    @property
    def decides_quickly(self) -> bool:
        """Whether data may take another branch of a forward that may be run for data of every kind."""
        return (self.decides or self.draws) and self.example.quick

    @property
    def is_sensitive(self) -> bool:
        """Whether other data may show anything but other numbers."""
        return self.example.shows or self.draws or counts_or_marks(self.values)

    @property
    def is_open(self) -> bool:
        """Whether data may take another side: of a bool that was always the same, or by a number or a selection."""
        bools = all(isinstance(answer, bool) for _, answer in self.sides) and not self.example.converts
        if not self.decides or self.draws or not bools:
            return self.decides
        taken = all((at, not answer) in self.sides for at, answer in self.sides)
        return self.idle < (_PATIENCE if taken else math.inf if self.example.quick else _LONG_PATIENCE)

    # -------------------------------------------------------------- one candidate
    def _tried(self, one: _DataCandidate) -> Probe | None:
        """A probe, if this data has to be compared or shows another branch."""
        looks, compared = self.is_open, self._is_compared(one)
        self.tried += looks or compared
        watched = self._watched(one) if looks else None
        # Eager raises on this data; or every side has been taken, and it shows nothing else.
        if watched is None if looks else not (self.draws or compared):
            return None
        why = self._why(one, watched)
        answer = self._ran(one, functools.partial(self.oracle.eager.ask, known=watched)) if why else None
        if answer is None or answer.outputs is None or not self._counts(why, one, answer):
            return None
        # Two branches may agree on dull data: another input that takes the branch is wanted then.
        if watched is not None and not is_dull(one.values, answer.outputs):
            self._note(watched, why)
        return self.oracle.remember(_probe(one, answer, self.first.sizes, branch=why == "branch"))

    def _watched(self, one: _DataCandidate) -> Decisions | None:
        watched = self._ran(one, self.oracle.eager.decisions)
        self.refused[one.planted] += watched is None and one.planted is not None
        self.idle += watched is not None
        return watched

    def _note(self, watched: Decisions, why: str) -> None:
        self.idle = 0 if why == "branch" else self.idle
        self.sides |= watched.sides
        self.signatures.add(watched.signature)

    def _why(self, one: _DataCandidate, watched: Decisions | None) -> str:
        """Why this data is compared: branch, always or chance; "" if it is not."""
        if watched is not None and self._is_other(watched):
            self.flipped = True
            return "branch"
        if self._is_compared(one):
            return "always"
        return "chance" if self.draws else ""

    def _counts(self, why: str, one: _DataCandidate, answer: Answer) -> bool:
        # A forward that draws may use the numbers for some data only (noise under a mask).
        if why == "chance":
            self.draws = not (answer.finite and _by_chance(self.oracle, one.values, answer.outputs or ()))
            return not self.draws  # one such input is enough
        return True

    def _ran(self, one: _DataCandidate, run: Callable[[Sequence[object]], Ran]) -> Ran:
        result = run(one.values)
        if self.oracle.eager.run.stopped:
            self.oracle.too_large[one.label] = self.oracle.eager.run.stopped
        return result

    def _is_other(self, watched: Decisions) -> bool:
        """Whether the forward took another branch than so far."""
        return watched.signature not in self.signatures or self.oracle.eager.sides.is_new(watched.taken)

    def _is_compared(self, one: _DataCandidate) -> bool:
        """Whether such data is compared even if the forward takes the same branch."""
        if one.always or one.label in _ALWAYS or (self.spare and one.label in _MORE):
            return True
        # A model that asks for NaN may heal it: then the graph has to.
        return (
            (one.label == _ZEROS and self.example.divides)
            or (one.label in _OUTSIDE and self.example.partial)
            or (one.label in NON_FINITE and self.example.asks_finite)
        )

    # -------------------------------------------------------------- all candidates
    def _candidates(self) -> Iterator[_DataCandidate]:
        """Those of each maker in turn, so that none uses up the budget alone."""
        for turn in itertools.zip_longest(*(makes(self) for makes in MAKERS.values())):
            yield from filter(None, turn)


def _multiples(search: _DataSearch) -> Iterator[_DataCandidate]:
    made = multiples(search.values, search.example)
    yield from (_DataCandidate(*one, exact=True, always=True) for one in made)


def _compared(search: _DataSearch) -> Iterator[_DataCandidate]:
    if not (search.decides or search.draws):
        return
    named = search.oracle.mentioned
    rows = (*named.rows, *named.keys) if search.decides_quickly else ()
    pairs = [one for one in rows if len(one) > 1][:_ROWS]
    keys = [float(one[0]) for one in rows if len(one) == 1]
    made = planted(search.values, search.example, [*named.values(search.example.files), *keys], pairs)
    yield from (_DataCandidate(label, data, exact=True, planted=what) for label, data, what in made)


def _steered(search: _DataSearch) -> Iterator[_DataCandidate]:
    if search.decides_quickly:
        made = steered(search.values, search.example, search.oracle.eager.decisions)
        yield from (_DataCandidate(*one, exact=True) for one in made)


def _usual(search: _DataSearch) -> Iterator[_DataCandidate]:
    if search.is_sensitive:
        yield from itertools.starmap(_DataCandidate, variants(search.values, finite=not search.example.asks_finite))


MAKERS: dict[str, Callable[[_DataSearch], Iterator[_DataCandidate]]] = {
    "multiples of a step": _multiples,
    "what data is compared with": _compared,
    "a number from data, moved": _steered,
    "other data": _usual,
}


def _probe(one: _DataCandidate, answer: Answer, sizes: dict[str, int], branch: bool) -> Probe:
    exact = one.exact and (branch or one.always)
    return answer.probe(one.label, "branch" if branch else "data", sizes, one.values, exact)


def _by_chance(oracle: Oracle, values: Sequence[object], outputs: Sequence[torch.Tensor | None]) -> bool:
    """Whether eager's outputs depend on random numbers here."""
    other = oracle.eager.ask(values, seed=1)
    pairs = zip(outputs, other.outputs, strict=True) if other.outputs is not None else ()
    return any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)


def equal_values(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether the tensors of two inputs are the same."""
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))
