"""Turns failing parts into culprits: finds the cause of each, proposes cures, and tries them on the whole model."""

from __future__ import annotations

import contextlib
import dataclasses

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause
from onnxpatch.diagnosis.lines.find_cause import cause_of
from onnxpatch.diagnosis.operator_support import describe
from onnxpatch.diagnosis.parts.part_trials import FailingPart, breaking_line
from onnxpatch.diagnosis.parts.search import Search
from onnxpatch.diagnosis.proposals import blame_patches, forked, propose
from onnxpatch.diagnosis.trial import Trial, as_patched
from onnxpatch.patched import patched
from onnxpatch.results.checks import AttemptResult
from onnxpatch.results.diagnosis import Culprit, Proposal


def treat(search: Search, found: list[FailingPart], proposing: bool) -> None:
    """Write the culprits into the search's diagnosis. proposing: whether cures are tried and proposed."""
    if not search.whole.fails:
        blame_patches(search)
        return
    search.diagnosis.culprits = [_culprit(search, one, proposing) for one in found]
    if proposing:
        _try_on_whole_model(search, found)


def _culprit(search: Search, part: FailingPart, proposing: bool) -> Culprit:
    cause = _cause(search, part)
    if not cause.source and part.trial.untranslated and search.left() > 0:  # the line may be found in its graph
        part.trial = search.attempt(part.subject, search.exporter, part.unit.name)
        cause = _cause(search, part)
    if part.wrapped_is_right:
        cause = Cause(kinds.DEFAULTS, cause.file, cause.line, cause.code)
    return Culprit(
        path=part.unit.path if part.unit.method == "forward" else part.unit.name,
        cls=type(part.unit.module).__name__,
        status=part.trial.status,
        exporter=search.exporter,
        construct=cause.construct,
        source=cause.source,
        code=cause.code,
        operator=cause.operator,
        error=part.trial.error[:1000],
        support=describe(cause.operator) if cause.operator.startswith("aten::") else "",
        also=tuple(part.also),
        proposals=tuple(_proposals(search, part, cause)) if proposing else (),
    )


def _proposals(search: Search, part: FailingPart, cause: Cause) -> list[Proposal]:
    subject, opset = as_patched(part.subject, part.trial), search.diagnosis.opset
    return propose(subject, cause, search.exporter, opset, search.attempt, search.registry, search.left)


def _cause(search: Search, one: FailingPart) -> Cause:
    return cause_of(one.unit, one.subject, one.trial, search.exporter, lambda: breaking_line(search, one))


# ------------------------------------------------------------------ does it cure the whole model?
def _try_on_whole_model(search: Search, found: list[FailingPart]) -> None:
    """Try on the whole model what cured its parts: all patches, branches=True, the other exporter."""
    culprits = search.diagnosis.culprits
    verdicts: dict[str, bool] = {}
    for kind in ("patch", "branches", "exporter"):
        names = [p.name for c in culprits for p in c.proposals if p.kind == kind and p.tried]
        cures = _cures_whole(search, found, kind, names[0]) if names else None
        if cures is not None:
            verdicts[kind] = cures
    search.diagnosis.culprits = [_with_verdicts(culprit, verdicts) for culprit in culprits]
    delivered = next((one for one in search.made if one.delivered), None)
    if delivered is not None and search.diagnosis.culprits:
        first, *others = search.diagnosis.culprits
        search.diagnosis.culprits = [
            dataclasses.replace(first, proposals=(_as_delivered(delivered), *first.proposals)),
            *others,
        ]


def _cures_whole(search: Search, found: list[FailingPart], kind: str, name: str) -> bool | None:
    """Whether a way makes the whole model right; None where no time is left to try it."""
    known = _made_before(search, kind, name)
    if known is not None or search.left() <= 0:
        return known
    # The part is the whole model: what cured it was tried on the whole already.
    if len(found) == 1 and found[0].subject is search.root:
        return True
    return _attempt_whole(search, kind, name).status == "right"


def _made_before(search: Search, kind: str, name: str) -> bool | None:
    """Whether an attempt of `export` that did the same to the whole model was right; None where there was none."""
    for one in search.made:
        same = {
            "patch": one.exporter == search.exporter and not (one.plain or one.branches or one.exclude),
            "branches": one.exporter == search.exporter and one.branches and not one.exclude,
            "exporter": one.exporter == name and one.plain and not one.branches,
        }[kind]
        if same:
            return one.verdict == "right"
    return None


def _as_delivered(made: AttemptResult) -> Proposal:
    return Proposal("export", made.name, f"what onnxpatch.export delivered: {made.name}", tried=True, whole=True)


def _attempt_whole(search: Search, kind: str, name: str) -> Trial:
    if kind == "exporter":
        return search.attempt(search.root, name, f"the whole model, {name}")
    with contextlib.ExitStack() as stack:
        opset, what = search.diagnosis.opset, f"the whole model, {kind}"
        if kind == "branches":
            stack.enter_context(forked(search.root, search.exporter, opset, search.registry))
        else:
            made = patched(search.root.model, exporter=search.exporter, opset=opset, registry=search.registry)
            stack.enter_context(made)
        return search.attempt(as_patched(search.root, search.whole), search.exporter, what)


def _with_verdicts(culprit: Culprit, verdicts: dict[str, bool]) -> Culprit:
    ways = tuple(dataclasses.replace(p, whole=verdicts.get(p.kind)) if p.tried else p for p in culprit.proposals)
    return dataclasses.replace(culprit, proposals=ways)
