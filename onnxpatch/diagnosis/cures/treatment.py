"""From the parts at fault to culprits with a cause and ways out, each way tried where it can be."""

from __future__ import annotations

import contextlib
import dataclasses

from onnxpatch.diagnosis.cures.operator_support import describe
from onnxpatch.diagnosis.cures.patch_bisect import Step, guilty
from onnxpatch.diagnosis.cures.proposals import forked, propose
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause
from onnxpatch.diagnosis.lines.find_cause import cause_of
from onnxpatch.diagnosis.parts.failing_part import FailingPart
from onnxpatch.diagnosis.parts.search import Search
from onnxpatch.diagnosis.trials.attempt import Trial, as_patched
from onnxpatch.patched import patch_model
from onnxpatch.patching.plan import Plan, make_plan
from onnxpatch.results.diagnosis import Culprit, Proposal
from onnxpatch.settings import make_settings


def treat(search: Search, found: list[FailingPart], proposing: bool) -> None:
    """Fill in the culprits of the search's diagnosis."""
    if not search.whole.fails:
        _blame_patches(search)
        return
    search.diagnosis.culprits = [_culprit(search, one, proposing) for one in found]
    if proposing:
        _on_the_whole(search, found)


def _culprit(search: Search, one: FailingPart, proposing: bool) -> Culprit:
    cause = _cause(search, one)
    if not cause.source and one.trial.halfway and search.left() > 0:  # its graph may tell the line
        one.trial = search.attempt(one.subject, search.exporter, one.unit.name)
        cause = _cause(search, one)
    if one.wrapped_is_right:
        cause = Cause(kinds.DEFAULTS, cause.file, cause.line, cause.code)
    ways: list[Proposal] = []
    if proposing:
        attempt = search.attempt
        ways = propose(
            as_patched(one.subject, one.trial),
            cause,
            search.exporter,
            search.diagnosis.opset,
            attempt,
            search.registry,
            search.left,
        )
    return Culprit(
        path=one.unit.path if one.unit.method == "forward" else one.unit.name,
        cls=type(one.unit.module).__name__,
        status=one.trial.status,
        exporter=search.exporter,
        construct=cause.construct,
        source=cause.source,
        code=cause.code,
        operator=cause.operator,
        error=one.trial.error[:1000],
        support=describe(cause.operator) if cause.operator.startswith("aten::") else "",
        also=tuple(one.also),
        proposals=tuple(ways),
    )


def _cause(search: Search, one: FailingPart) -> Cause:
    return cause_of(one.unit, one.subject, one.trial, search.exporter, lambda: search.breaking_line(one))


# ------------------------------------------------------------------ does it cure the whole model?
def _on_the_whole(search: Search, found: list[FailingPart]) -> None:
    """Try on the whole model what came out right on its parts: all patches, branches, the other exporter."""
    culprits = search.diagnosis.culprits
    verdicts: dict[str, bool] = {}
    for kind in ("patch", "branches", "exporter"):
        ways = [p for c in culprits for p in c.proposals if p.kind == kind and p.tried]
        if not ways or search.left() <= 0:
            continue
        if len(found) == 1 and found[0].subject is search.root:
            verdicts[kind] = True
        else:
            verdicts[kind] = _whole(search, kind, ways[0].name).status == "right"
    search.diagnosis.culprits = [_judged(culprit, verdicts) for culprit in culprits]


def _whole(search: Search, kind: str, name: str) -> Trial:
    if kind == "exporter":
        return search.attempt(search.root, name, f"the whole model, {name}")
    with contextlib.ExitStack() as stack:
        opset, what = search.diagnosis.opset, f"the whole model, {kind}"
        if kind == "branches":
            stack.enter_context(forked(search.root, search.exporter, opset, search.registry))
        else:
            made = patch_model(search.root.model, exporter=search.exporter, opset=opset, registry=search.registry)
            stack.enter_context(made)
        return search.attempt(as_patched(search.root, search.whole), search.exporter, what)


def _judged(culprit: Culprit, verdicts: dict[str, bool]) -> Culprit:
    ways = tuple(dataclasses.replace(p, whole=verdicts.get(p.kind)) if p.tried else p for p in culprit.proposals)
    return dataclasses.replace(culprit, proposals=ways)


# ------------------------------------------------------------------ a patch at fault
_AT_FAULT = ("silent", "refused")  # an export that was cut off proves nothing against a patch


def _blame_patches(search: Search) -> None:
    """The plain export is right: see whether the patches keep it so, and find the one that does not."""
    settings = make_settings(exporter=search.exporter, opset=search.diagnosis.opset)
    made = make_plan(search.root.model, settings=settings, registry=search.registry)
    if not made.swaps and not made.functions:
        return
    tried: list[Trial] = []
    root = as_patched(search.root, search.whole)

    def wrong() -> bool:
        tried.append(search.attempt(root, search.exporter, "with patches"))
        return search.left() > 0 and tried[-1].status in _AT_FAULT

    steps = guilty(made, wrong)
    failed = [trial for trial in tried if trial.status in _AT_FAULT]
    if failed and search.left() <= 0:
        message = f"with its patches it is {failed[0].status}; the budget was spent before the one at fault was found"
        search.diagnosis.notes.append(f"{message}: give a larger budget=")
    elif steps and failed:
        search.diagnosis.culprits = [_patch_culprit(search, made, step, failed[-1]) for step in steps]


def _patch_culprit(search: Search, made: Plan, step: Step, trial: Trial) -> Culprit:
    patch = next(p for p in made.patches() if p.name == step.patch)
    module = next((swap.module for swap in made.swaps if swap is step.entry), search.root.model)
    text = f"leave the patch {step.patch!r} out: exclude={step.patch!r}"
    return Culprit(
        path=step.path or "",
        cls=type(module).__name__,
        status="patch",
        exporter=search.exporter,
        construct=f"the patch {step.patch!r}",
        source=patch.declared_at,
        error=trial.error[:1000],
        proposals=(Proposal("exclude", step.patch, text, tried=True, whole=True),),
    )
