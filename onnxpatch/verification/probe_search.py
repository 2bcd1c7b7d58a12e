"""Chooses the inputs to compare a graph at: other data, other branches and other sizes that eager accepts.

A graph is one path through the forward. It is wrong where eager takes another path, and no random input need show that:

    if x.sum() > 0: ...            other data of the same sign takes the same branch; x negated does not
    x[mask] = 0                    no branch, but other masks may be wrong: some are always tried
    if x.shape[1] > 512: ...       a size beyond the constant
    table[: x.shape[1]]            any other size

So candidates are made from what eager was seen to do at the example (`branch_recorder`, `size_recorder`). Each is run
in eager once, recorded, and kept as a probe if it takes another branch, or is of a kind that is compared always. The
budget is shared: half for data, half for sizes, and a few runs beyond it for what would otherwise stay unproven.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.verification.asked_data import asked_data, moved_to_constants
from onnxpatch.verification.branch_recorder import Decisions
from onnxpatch.verification.compared_constants import at_keys, beyond_constants, beyond_counts, in_proportion
from onnxpatch.verification.eager import Answer
from onnxpatch.verification.fractions_of_sizes import fractions_of_sizes
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.probe_data import MAGNITUDES, MASKED, NON_FINITE, is_mask, scaled, variants
from onnxpatch.verification.ratios_of_sizes import ratios_of_sizes
from onnxpatch.verification.resized_sizes import resized_sizes
from onnxpatch.verification.size_branches import size_branches
from onnxpatch.verification.size_search import size_probes
from onnxpatch.verification.structured_data import is_dull, structured

_TRIES = 4  # other data tried for a branch, even beyond the budget
_SIZES = 8  # probes at other sizes, however many branches there are
_LAST_QUESTIONS = 24  # for a dimension without a probe at another size
_BRANCHES = 12  # inputs that take another branch
_QUICK_BRANCHES = 40  # the same for a forward that takes no time
_MAGNITUDES = 8  # inputs that give Python numbers of another magnitude

# Ints and bools are indices and masks: a graph may be wrong for other ones without any branch.
_ALWAYS = ("whole numbers + 1", "flags flipped", MASKED)
_MORE = (
    "whole numbers zero", "whole numbers negated", "whole numbers reversed", "whole numbers exchanged",
    "whole numbers below zero", "flags all set", "no flag set",
)  # fmt: skip
_ZEROS = "zeros"
_OUTSIDE = ("negated", "alternating signs")  # of what roots and logarithms take
Candidate = tuple[str, list[Any], bool | None]


def find_probes(oracle: Oracle, first: Probe, decisions: Decisions | None) -> list[Probe]:
    """The example first, then other data and branches, then other sizes, the most informative first.

    first: the example with eager's answer. decisions: the branches that eager takes at the example.
    """
    probes = [first, *_other_data(oracle), *_branches(oracle, first, decisions)]
    most = oracle.budget.probes
    if most > _SIZES:
        probes += _magnitudes(oracle, first)
    decided = list(_unique(_decided(oracle, decisions))) if decisions is not None else []
    room = max(most - len(probes), min(_SIZES, most // 2))
    # A generator: sizes beyond the number of probes are never run.
    free = (probe for probe in _unique(size_probes(oracle)) if all(probe is not known for known in decided))
    found = [*probes, *decided, *itertools.islice(free, room)]
    return [*found, *_unmoved(oracle, found)] if most > 1 else found


def _decided(oracle: Oracle, example: Decisions) -> Iterator[Probe]:
    """Sizes that follow from the forward's arithmetic and comparisons."""
    if example.sizes.products:
        yield from fractions_of_sizes(oracle, example.sizes)
    if example.sizes.comparisons:
        yield from size_branches(oracle, example)
    if example.sizes.ratios:
        yield from ratios_of_sizes(oracle)
    if example.sizes.resized:
        yield from resized_sizes(oracle, example.sizes)
    if oracle.dims:
        yield from beyond_constants(oracle, example)
        yield from beyond_counts(oracle, example)
        yield from in_proportion(oracle, example)
        yield from at_keys(oracle)


def _unmoved(oracle: Oracle, found: Sequence[Probe]) -> Iterator[Probe]:
    """A probe for each dimension that no probe so far moves: alone, or with the dimensions of the same size.

    Without one the dimension would be unproven.
    """
    for dim in oracle.dims:
        if oracle.moved_by(found, dim):
            continue
        known = next((probe for probe in oracle.accepted() if oracle.moved_by([probe], dim)), None)
        probe = known or _moving(oracle, dim)
        if probe:
            yield probe


def _moving(oracle: Oracle, dim: DynamicDim) -> Probe | None:
    n = dim.size
    oracle.reserve(_LAST_QUESTIONS)
    together = [other.name for other in oracle.dims if other.size == n]
    # One off shows most; the others suit models that want even sizes or multiples of 8.
    for size in dict.fromkeys([n + 1, n - 1, n // 2, 2 * n, n - 8, n + 8]):
        for names in ([dim.name], together):
            if size > 1 and (probe := oracle.at(dict.fromkeys(names, size), must=True)):
                return probe
    return None


def _other_data(oracle: Oracle) -> list[Probe]:
    """A probe with other values; none if the example alone fills the budget, since other sizes bring other values."""
    probe = oracle.other_data if not oracle.dims or oracle.affords_the_example else None
    return [probe] if probe else []


def _magnitudes(oracle: Oracle, first: Probe) -> Iterator[Probe]:
    """Larger and smaller numbers: what overflows, or loses small terms, in the graph alone."""
    for label, values in (scaled(first.values, factor) for factor in MAGNITUDES):
        if _equal(values, first.values) or not oracle.affords_the_example:
            continue
        answer = oracle.eager.ask(values)
        if answer.outputs is not None and answer.finite:
            yield oracle.kept(answer.probe(label, "data", first.sizes, values))


def _branches(oracle: Oracle, first: Probe, example: Decisions | None) -> Iterator[Probe]:
    """Probes at which the forward takes another branch. Half of the budget is left for sizes.

    Ints, bools, masks, exact multiples of steps, and zeros in divisions are varied even without another branch.
    """
    values, seen = first.values, {example.signature if example else ()}
    measured = {example.magnitudes if example else ()}
    decides, tried, flipped = seen != {()} or measured != {()}, 0, False
    most = _QUICK_BRANCHES if example is not None and example.quick else _BRANCHES
    # Without a conversion to Python (`decides`) no data can take another branch, and runs that record them are saved.
    draws = oracle.eager.draws
    labels: set[str] = set()
    found: list[Candidate] = []  # found on the way: the second half of `a and b`
    for label, changed, exact in _growing(_candidates(oracle, values, example, decides or draws), found):
        # Beyond the budget a few are tried still, until one input takes another branch: else no branch would be
        # compared.
        spare = not oracle.used_up and not oracle.half_spent
        if not most or (not spare and (flipped or tried >= _TRIES)) or oracle.late:
            return
        if label in labels or _equal(changed, values):
            continue
        labels.add(label)
        always = exact is None or label in (_ALWAYS + _MORE if spare else _ALWAYS)
        always |= label == _ZEROS and example is not None and example.divides
        always |= label in _OUTSIDE and example is not None and example.partial
        # A model that asks for NaN may heal it: then the graph has to.
        heals = label in NON_FINITE and example is not None and example.asks_finite
        watched = oracle.eager.decisions(changed) if decides else None
        tried += decides or always or heals
        if decides and oracle.eager.run.stopped:
            oracle.too_large[label] = oracle.eager.run.stopped
        flips = watched is not None and watched.signature not in seen
        # Python may compute with a number from the data, and decide on the result.
        far = watched is not None and len(measured) <= _MAGNITUDES and watched.magnitudes not in measured
        # Eager raises on this data, or nothing new can be seen with it.
        if (decides and watched is None) or not (always or flips or far or draws or heals):
            continue
        flipped |= flips
        if flips and watched is not None and example is not None:
            deeper = watched.constants.beyond(example.constants, changed)
            found += ((f"{label}, {further}", planted, True) for further, planted in deeper)
        answer = oracle.eager.ask(changed)
        if answer.stopped:
            oracle.too_large[label] = answer.stopped
        # A forward that draws may use the numbers for some data only (noise under a mask).
        chance = draws and not (always or flips or far) and _by_chance(oracle, changed, answer)
        wanted = always or flips or chance or far or heals
        if answer.outputs is not None and wanted and (answer.finite or always or flips):
            most -= 1
            kind = "branch" if flips else "data"
            yield oracle.kept(answer.probe(label, kind, first.sizes, changed, exact is None or (exact and flips)))
        # One probe on which random numbers reach the output is enough.
        draws &= not chance
        # Two branches may agree on dull data: another input that takes the branch is wanted then.
        if watched and not is_dull(changed, answer.outputs or ()):
            seen.add(watched.signature)
            if exact is not None:
                measured.add(watched.magnitudes)


def _growing(first: Iterator[Candidate], more: list[Candidate]) -> Iterator[Candidate]:
    """The candidates of `first`; those that appear in `more` meanwhile go before the rest."""
    for one in first:
        yield one
        while more:
            yield more.pop(0)


def _candidates(
    oracle: Oracle, values: Sequence[object], example: Decisions | None, anything: bool
) -> Iterator[Candidate]:
    """(label, leaves, exact). exact None: exact values, compared even if the forward takes the same branch."""
    if example is not None and example.constants.steps:
        yield from ((label, changed, None) for label, changed in example.constants.multiples(values))
    masks = any(map(is_mask, values))
    undefined = example is not None and (example.divides or example.partial)
    heals = example is not None and example.asks_finite
    if not (anything or masks or undefined or heals or _whole(values)):
        return
    finite, compared = not (example and example.asks_finite), example.compared if example else ()
    usual = ((label, changed, False) for label, changed in variants(values, finite, compared))
    quick = anything and example is not None and example.quick
    related = ((label, changed, True) for label, changed in structured(values)) if quick else ()
    flips = example.constants.flips(values, oracle.hints.values) if example is not None and anything else iter(())
    constant = ((label, changed, True) for label, changed in flips)
    # In turn, so that no kind uses up the budget alone.
    kinds = [constant, _asked(oracle, values, example) if quick else (), itertools.chain(usual, related)]
    for turn in itertools.zip_longest(*kinds):
        yield from filter(None, turn)


def _asked(oracle: Oracle, values: Sequence[object], example: Decisions | None) -> Iterator[Candidate]:
    """Data for the numbers that the code asks for, by name or through a number computed from the data."""
    if example is None:
        return
    yield from ((label, moved, True) for label, moved in moved_to_constants(values, example, oracle.eager.decisions))
    if example.converts:
        yield from ((label, found, None) for label, found in asked_data(values, oracle.hints.asked, example))


def _by_chance(oracle: Oracle, values: Sequence[object], answer: Answer) -> bool:
    """Whether eager's output depends on random numbers here, though it does not at the example."""
    other = oracle.eager.ask(values, seed=1)
    if answer.outputs is None or other.outputs is None:
        return False
    pairs = zip(answer.outputs, other.outputs, strict=True)
    return any(a is not None and b is not None and not torch.equal(a, b) for a, b in pairs)


def _whole(values: Sequence[object]) -> bool:
    return any(isinstance(v, torch.Tensor) and not v.is_floating_point() and not v.is_complex() for v in values)


def _unique(probes: Iterator[Probe]) -> Iterator[Probe]:
    seen: set[int] = set()
    for probe in probes:
        if id(probe) not in seen:
            seen.add(id(probe))
            yield probe


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if isinstance(x, torch.Tensor))
