"""Turns failing parts into culprits: finds the cause of each, proposes cures, and tries them on the whole model.

Where the plain export is right, the patched one is tried: a patch that makes it wrong is the culprit then.
"""

from __future__ import annotations

import contextlib
import dataclasses

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause
from onnxpatch.diagnosis.lines.find_cause import cause_of
from onnxpatch.diagnosis.operator_support import describe
from onnxpatch.diagnosis.parts.part_trials import FailingPart, breaking_line
from onnxpatch.diagnosis.parts.search import Search
from onnxpatch.diagnosis.proposals import Step, forked, guilty, propose
from onnxpatch.diagnosis.trial import Trial, as_patched
from onnxpatch.patched import patched
from onnxpatch.patching.plan import Plan
from onnxpatch.patching.plan import plan as make_plan
from onnxpatch.results.checks import AttemptResult
from onnxpatch.results.diagnosis import Culprit, Proposal
from onnxpatch.settings import make_settings


def treat(search: Search, found: list[FailingPart], proposing: bool) -> None:
    """Write the culprits into the search's diagnosis. proposing: whether cures are tried and proposed."""
    if not search.whole.fails:
        _blame_patches(search)
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


# ------------------------------------------------------------------ a patch at fault
_FAILED = ("silent", "refused")  # not "slow": an export that was cut off says nothing about a patch


def _blame_patches(search: Search) -> None:
    """Where the plain export is right, find the patch that makes it wrong, if any does."""
    settings = make_settings(exporter=search.exporter, opset=search.diagnosis.opset)
    made = make_plan(search.root.model, settings=settings, registry=search.registry)
    if not made.swaps and not made.functions:
        return
    tried: list[Trial] = []
    root = as_patched(search.root, search.whole)

    def wrong() -> bool:
        tried.append(search.attempt(root, search.exporter, "with patches"))
        # Without time left every further part counts as right, which ends the bisection.
        return search.left() > 0 and tried[-1].status in _FAILED

    found: list[tuple[Step, Trial]] = []
    while steps := guilty(_without(made, found), wrong):
        # The last trial that failed had the fewest patches. Several patches may each make it wrong: the next search
        # begins with all others, and so is the trial of leaving these out.
        found += [(step, next(trial for trial in reversed(tried) if trial.status in _FAILED)) for step in steps]
    failed = [trial for trial in tried if trial.status in _FAILED]
    if failed and search.left() <= 0:
        message = (
            f"with patches the export is {failed[0].status}; the budget was spent before the patch at fault was found"
        )
        search.diagnosis.notes.append(f"{message}: give a larger budget=")
    elif found:
        cure = _leaving_out(list(dict.fromkeys(step.patch for step, _ in found)))
        search.diagnosis.culprits = [_patch_culprit(search, made, step, trial, cure) for step, trial in found]


def _without(made: Plan, found: list[tuple[Step, Trial]]) -> Plan:
    """The plan without the patches that were found."""
    names = {step.patch for step, _ in found}
    swaps = [swap for swap in made.swaps if swap.patch.name not in names]
    return dataclasses.replace(made, swaps=swaps, functions=[one for one in made.functions if one[0].name not in names])


def _leaving_out(names: list[str]) -> Proposal:
    listed = ", ".join(map(repr, names))
    what, keyword = (f"the patch {listed}", listed) if len(names) == 1 else (f"the patches {listed}", f"[{listed}]")
    return Proposal("exclude", ",".join(names), f"leave {what} out: exclude={keyword}", tried=True, whole=True)


def _patch_culprit(search: Search, made: Plan, step: Step, trial: Trial, cure: Proposal) -> Culprit:
    patch = next(p for p in made.patches() if p.name == step.patch)
    module = next((swap.module for swap in made.swaps if swap is step.entry), search.root.model)
    return Culprit(
        path=step.path or "",
        cls=type(module).__name__,
        status="patch",
        exporter=search.exporter,
        construct=f"the patch {step.patch!r}",
        source=patch.declared_at,
        error=trial.error[:1000],
        proposals=(cure,),
    )
