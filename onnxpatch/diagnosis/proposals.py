"""Proposes cures for one failing part: tries patches, branches=True and another exporter on it, and adds advice.

Each trial is one export of the part. A proposal with `tried=True` came out right; the advice, by kind of construct, is
what to write instead. Which patches of a plan make a difference is bisected, by trying parts of it (delta debugging):

Where the plain export is right, the patched one is tried: a patch that makes it wrong is the culprit then.

    plan a b c d e f g h, wrong because of f     a-d right, e-h wrong, e-f wrong, e right, f wrong   -> [f]
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.cause import Cause
from onnxpatch.diagnosis.trial import Subject, Trial, as_patched
from onnxpatch.patched import Patched, patched
from onnxpatch.patching.match import FunctionPatch
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.plan import plan as make_plan
from onnxpatch.patching.registry import Registry
from onnxpatch.process import undone
from onnxpatch.results.diagnosis import Culprit, Proposal
from onnxpatch.settings import Exporter, make_settings

if TYPE_CHECKING:  # an export uses this file, and not the search
    from onnxpatch.diagnosis.parts.search import Search

T = TypeVar("T")


@dataclass(frozen=True)
class _Step:
    """One entry of a plan: a swap at a path, or a function patch, whose path is None."""

    patch: str
    path: str | None
    entry: Swap | FunctionPatch = dataclasses.field(compare=False, repr=False)


def steps_of(plan: Plan) -> list[_Step]:
    """The entries of a plan, swaps first."""
    swaps = [_Step(swap.patch.name, swap.path, swap) for swap in plan.swaps]
    return swaps + [_Step(patch.name, None, (patch, found)) for patch, found in plan.functions]


@contextlib.contextmanager
def applied(plan: Plan, steps: Sequence[_Step]) -> Iterator[Patched]:
    """Patch the model with only some entries of its plan inside the block."""
    swaps = [step.entry for step in steps if isinstance(step.entry, Swap)]
    functions = [step.entry for step in steps if not isinstance(step.entry, Swap)]
    made = Patched(dataclasses.replace(plan, swaps=swaps, functions=functions))
    with undone(made.restore):
        yield made.apply()


def fewest(items: Sequence[T], bad: Callable[[Sequence[T]], bool], tries: int = 64) -> list[T]:
    """A smallest part of `items` for which `bad` is true, given that it is true for all of them.

    Tries halves, then quarters, and so on, and their complements: about 2 log2(n) tries for one guilty item. tries: the
    most calls of `bad`; where they are used up, the answer may have items that could be left out.
    """
    left, parts = list(items), 2
    while len(left) > 1 and tries > 0:
        chunks = _chunks(left, min(parts, len(left)))
        others = [[item for item in left if item not in chunk] for chunk in chunks]
        for smaller in [*chunks, *(others if len(chunks) > 2 else ())]:
            tries -= 1
            if smaller and bad(smaller):
                # After a complement one chunk less is left, so the chunks keep their size; after a chunk it starts
                # again with halves.
                left, parts = smaller, max(2, min(parts - 1, len(smaller))) if smaller in others else 2
                break
            if tries <= 0:
                return left
        else:
            if parts >= len(left):
                return left
            parts = min(2 * parts, len(left))
    return left


def _chunks(items: Sequence[T], count: int) -> list[list[T]]:
    # Chunks that differ by one at most, however many there are.
    edges = [round(i * len(items) / count) for i in range(count + 1)]
    return [list(items[a:b]) for a, b in itertools.pairwise(edges) if b > a]


def guilty(plan: Plan, wrong: Callable[[], bool]) -> list[_Step]:
    """The fewest entries of a plan with which `wrong()` is true; [] where it is false with all of them.

    plan: of the unpatched model. wrong: called while the model is patched with a part of the plan.
    """

    def bad(steps: Sequence[_Step]) -> bool:
        with applied(plan, steps):
            return wrong()

    steps = steps_of(plan)
    return fewest(steps, bad) if steps and bad(steps) else []


Try = Callable[[Subject, str], Trial]
_OTHER_EXPORTER: dict[str, Exporter] = {"dynamo": "trace", "trace": "dynamo", "script": "trace"}
_ADVICE = {
    kinds.BRANCH_TENSOR: "compute both sides and choose with torch.where, or keep the `if` and use branches=True",
    kinds.BRANCH_SIZE: "write it without the branch (always pad, slice with the size itself), or torch.where on a size",
    kinds.NUMBER_TENSOR: "keep it a 0-d tensor: no .item(), int() or float(); choose by torch.index_select or a mask",
    kinds.NUMBER_SIZE: "keep sizes symbolic: //, * and -1 in reshape, no int(), float(), round() or math on them",
    kinds.LOOP_ROWS: "write it on the whole tensor (torch.vmap, matmul, cumsum), or as torch.ops.higher_order.scan",
    kinds.LOOP_SIZE: "write it on the whole tensor, or as a scan over the axis (torch.ops.higher_order.scan)",
    kinds.LOOP_TENSOR: "run a fixed number of steps with a mask on those that are done, or use onnxpatch.while_loop",
    kinds.BUILT: "use torch.stack or torch.cat on the 0-d tensors; torch.arange and .new_tensor for sizes",
    kinds.FIXED_SIZE: "make the other operand follow the size: expand, arange(size) or -1 instead of a fixed number",
    kinds.DATA_SIZE: "use masks instead of selections: keep all rows and weight them, or pad to a fixed maximum",
    kinds.COMPLEX: "keep real and imaginary parts in two real tensors (cos and sin for rotations)",
    kinds.NO_TRANSLATION: "write it with operators that have a translation, in a method marked onnx_forward",
    kinds.NOT_LOADED: "write it with other operators in a method marked onnx_forward, or cast its inputs",
    kinds.WRONG_TRANSLATION: "write it with elementary operators in a method marked onnx_forward",
    kinds.NOT_SCRIPTABLE: "export by tracing (script=False), or mark the Python-only part with torch.jit.ignore",
    kinds.DEFAULTS: "give every argument of forward, or use onnxpatch.export, which keeps defaults out of the graph",
    kinds.CAUGHT: "use onnxpatch.export, which continues after it, or check shapes with an `if` instead of `try`",
    kinds.STATE: "build the table from the input's size in every call instead of keeping it",
}


def propose(
    subject: Subject,
    cause: Cause,
    exporter: Exporter,
    opset: int,
    attempt: Try,
    registry: Registry,
    left: Callable[[], float],
) -> list[Proposal]:
    """Cures that came out right on `subject`, the smallest change first, then what to write instead.

    attempt: exports a subject. left: seconds of the budget; without any, only advice is given.
    """
    found: list[Proposal] = []
    if left() > 0:
        found += _by_patches(subject, exporter, opset, attempt, registry)
    # Not where a patch cures it: both sides of a branch make a larger graph.
    if not found and left() > 0 and cause.construct in kinds.CURED_BY_BRANCHES and exporter != "script":
        found += _by_branches(subject, exporter, opset, attempt, registry)
    if left() > 0:
        found += _by_exporter(subject, exporter, attempt)
    advice = _ADVICE.get(cause.construct)
    if advice:
        found.append(Proposal("rewrite", cause.construct, advice))
    if not any(p.tried for p in found):
        found.append(
            Proposal("none", "", "nothing that was tried cures it: no registered patch, no option, no other exporter")
        )
        text = "give the class a forward for the export alone: a method decorated with onnxpatch.onnx_forward"
        found.append(Proposal("decorator", "onnx_forward", text))
    return found


# ------------------------------------------------------------------ patches
def _by_patches(subject: Subject, exporter: Exporter, opset: int, attempt: Try, registry: Registry) -> list[Proposal]:
    made = make_plan(subject.model, settings=make_settings(exporter=exporter, opset=opset), registry=registry)
    used = _used(subject, made, exporter, attempt)
    if not used:
        return []
    # One of them may be enough: others act on the way without being needed. Each try takes an export.
    alone = [[step] for step in [*{step.patch: step for step in used}.values()][:4]] if len(used) > 1 else []
    enough = next((steps for steps in alone if _cures(subject, made, steps, exporter, attempt)), used)
    names = list(dict.fromkeys(step.patch for step in enough))
    listed = ", ".join(repr(name) for name in names)
    cures = "patches {} cure it" if len(names) > 1 else "patch {} cures it"
    text = f"the {cures.format(listed)}: export with onnxpatch.export, or inside onnxpatch.patched(model)"
    return [Proposal("patch", ", ".join(names), text, tried=True)]


def _used(subject: Subject, made: Plan, exporter: Exporter, attempt: Try) -> list[_Step]:
    """The entries of the plan that acted in an export which came out right; [] where it did not."""
    steps = steps_of(made)
    if not steps:
        return []
    with applied(made, steps) as active:
        trial = attempt(subject, exporter)
        hits = set(active.scope.hits)
    if trial.status != "right":
        return []
    # A function patch stands by for every call of its function: it counts only if it was called.
    return [step for step in steps if step.path is not None or step.patch in hits]


def _cures(subject: Subject, made: Plan, steps: Sequence[_Step], exporter: Exporter, attempt: Try) -> bool:
    names = {step.patch for step in steps}
    with applied(made, [step for step in steps_of(made) if step.patch in names]):
        return attempt(subject, exporter).status == "right"


# ------------------------------------------------------------------ branches, exporters
def _by_branches(subject: Subject, exporter: Exporter, opset: int, attempt: Try, registry: Registry) -> list[Proposal]:
    with forked(subject, exporter, opset, registry) as ready:
        if not ready or attempt(subject, exporter).status != "right":
            return []
    return [Proposal("branches", "branches=True", "export both sides of the branch: branches=True", tried=True)]


@contextlib.contextmanager
def forked(subject: Subject, exporter: Exporter, opset: int, registry: Registry) -> Iterator[bool]:
    """Patch the subject with branches=True inside the block; yields False where that is not possible."""
    example = subject.inputs.rebuild(subject.inputs.values())
    forking = patched(subject.model, exporter=exporter, opset=opset, branches=True, example=example, registry=registry)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(forking)
        except Exception:  # no branches, or none that can be exported: no proposal
            yield False
            return
        yield True


def _by_exporter(subject: Subject, exporter: Exporter, attempt: Try) -> list[Proposal]:
    other = _OTHER_EXPORTER[exporter]
    if attempt(subject, other).status != "right":
        return []
    return [Proposal("exporter", other, f"the other exporter: exporter={other!r}", tried=True)]


# ------------------------------------------------------------------ a patch at fault
_FAILED = ("silent", "refused")  # not "slow": an export that was cut off says nothing about a patch


def blame_patches(search: Search) -> None:
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

    found: list[tuple[_Step, Trial]] = []
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


def _without(made: Plan, found: list[tuple[_Step, Trial]]) -> Plan:
    """The plan without the patches that were found."""
    names = {step.patch for step, _ in found}
    swaps = [swap for swap in made.swaps if swap.patch.name not in names]
    return dataclasses.replace(made, swaps=swaps, functions=[one for one in made.functions if one[0].name not in names])


def _leaving_out(names: list[str]) -> Proposal:
    listed = ", ".join(map(repr, names))
    what, keyword = (f"the patch {listed}", listed) if len(names) == 1 else (f"the patches {listed}", f"[{listed}]")
    return Proposal("exclude", ",".join(names), f"leave {what} out: exclude={keyword}", tried=True, whole=True)


def _patch_culprit(search: Search, made: Plan, step: _Step, trial: Trial, cure: Proposal) -> Culprit:
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
