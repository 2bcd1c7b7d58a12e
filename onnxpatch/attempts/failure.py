"""`Failure`: why one attempt failed. `next_attempt` decides from it what is tried next."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Literal

import torch

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.diagnosis.lines import constructs as kinds
from onnxpatch.diagnosis.lines.exporter_lines import operator_named
from onnxpatch.diagnosis.lines.find_cause import construct_of_error
from onnxpatch.errors import BranchError, OnnxpatchError, RefusedError, VerificationError, error_chain
from onnxpatch.exporters.exported import place_of, reason, root_of, translated
from onnxpatch.limits import TimeLimit
from onnxpatch.messages.user_code import frames_of, is_user_frame
from onnxpatch.patching.registry import Patch
from onnxpatch.patching.when import EXPORT_QUESTIONS
from onnxpatch.results.report import Report
from onnxpatch.verification.reference import Reference

_IN_TEXT = re.compile(r'File "([^"]+\.py)", line (\d+)')
_IS_ONE = re.compile(r"Eq\(.*, 1\)").fullmatch  # a condition
_QUESTIONS = {path.rpartition(".")[2] for path in EXPORT_QUESTIONS}
_LONGEST = 240  # characters of an error


@dataclass(frozen=True)
class Failure:
    """Why one attempt failed.

    kind: refused (the exporter raised), wrong (the ONNX output differs from PyTorch's), late (max_seconds is over) or
    cut (it needed more than the processor time of a later attempt, or the first one more for expressions of sizes).
    error: one line. module, line: where, if known. patches: those that acted. at_fault: those that are known to have
    failed. branch: a Python branch or loop on data or a size may be the cause. on_data: torch refused a branch on data
    in the model's own code. operator: the one that the exporter cannot translate. larger: sizes at which none inside
    the model is 1, where the file is wrong since it took one that is 1 in the example for 1 always. other: sizes at
    which the file is wrong and eager may take another side of an `if`, the nearest to the example's. asks: whether the
    model's code asks if it is exported.
    """

    attempt: Attempt
    kind: Literal["refused", "wrong", "late", "cut"]
    error: str
    module: str = ""
    line: str = ""
    patches: tuple[str, ...] = ()
    at_fault: tuple[str, ...] = ()
    branch: bool = False
    on_data: bool = False
    operator: str = ""
    larger: tuple[tuple[str, int], ...] = ()
    other: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0
    asks: bool = False


def failure_of(
    attempt: Attempt,
    error: OnnxpatchError,
    acted: Sequence[Patch],
    planned: Sequence[Patch],
    model: torch.nn.Module,
    reference: Reference | None,
    seconds: float,
) -> Failure:
    """The failure of an attempt. acted: the patches that acted. planned: all patches that may have raised the error."""
    names = tuple(dict.fromkeys(patch.name for patch in acted))
    made = Failure(attempt, "refused", str(error)[:_LONGEST], patches=names, seconds=seconds)
    if isinstance(error.__cause__, TimeLimit):
        return replace(made, kind="cut" if error.__cause__.processor else "late")
    made = replace(made, asks=_asks(reference))
    if isinstance(error, VerificationError):
        return _of_wrong(made, error, model, reference)
    return _of_refusal(made, error, planned, model, reference)


def _asks(reference: Reference | None) -> bool:
    """Whether a function that ran in eager asks if it is exported: what it computes then may be something else."""
    ran = reference.eager.sides.functions if reference is not None else ()
    return any(not _QUESTIONS.isdisjoint(one.code.co_names) for one in ran)


def _of_refusal(
    made: Failure, error: OnnxpatchError, planned: Sequence[Patch], model: torch.nn.Module, reference: Reference | None
) -> Failure:
    root, patch = root_of(error.__cause__ or error), _stand_in_of(error, planned)
    module, line = place_of(error, model)
    # A line has room for few words, and the place stands behind them.
    what = f"BranchError: {root.what}" if isinstance(root, BranchError) and root.what else ""
    said = (what or reason(error.__cause__ or error))[:_LONGEST]
    failure = replace(made, error=said, module=_path(module), line=_place(line or translated(error)))
    if patch:
        return replace(failure, patches=tuple(dict.fromkeys((*made.patches, patch))), at_fault=(patch,))
    kind, text = type(root).__name__, " ".join(str(root).split())
    operator = operator_named(kind, text)
    # torch.jit.script keeps every branch, and no branch brings a translation of an operator.
    if operator or isinstance(model, torch.jit.ScriptModule):
        return replace(failure, operator=operator)
    construct = construct_of_error(kind, text, made.attempt.exporter)
    data = construct in (kinds.BRANCH_TENSOR, kinds.DATA_SIZE)
    branch = data or _may_be_branch(construct, line, reference)
    return replace(failure, branch=branch, on_data=data and not isinstance(root, RefusedError))


def _may_be_branch(construct: str, line: str, reference: Reference | None) -> bool:
    """Whether an error that does not mention data may come from a branch on a size, or from a loop."""
    found = re.search(r"at (.+):(\d+) in ", line)
    there = kinds.construct_at(found[1], int(found[2])) if found else None
    if there is not None:
        return there.kind in kinds.CURED_BY_BRANCHES | kinds.LOOPS
    return _decides(reference, kinds.LOOPS if construct == kinds.FIXED_SIZE else frozenset())


def _of_wrong(made: Failure, error: VerificationError, model: torch.nn.Module, reference: Reference | None) -> Failure:
    report = error.report
    assert isinstance(report, Report)
    first = report.first_wrong()
    text = first.sentence() if first else str(error).splitlines()[0]
    # At the example the graph has the very branch that eager takes: what is wrong there is something else. A file that
    # no runtime loads may have a size of that branch, and nodes that take any.
    # One patch takes a loop's pieces at once, which may be wrong anywhere: then the loop is still to be tried.
    elsewhere = first is not None and (
        first.kind != "example" or first.stage == "loading" or "pieces-at-once" in made.patches
    )
    # Of `len(x)` no comparison is recorded, so loops and branches on sizes are looked for in the code.
    by_size = kinds.LOOPS | {kinds.BRANCH_SIZE}
    branch = elsewhere and not isinstance(model, torch.jit.ScriptModule) and _decides(reference, by_size)
    larger = _largest(one.sizes for one in report.guards if one.harmful and _IS_ONE(one.expression))
    other = _nearest_wrong(report, reference) if branch and reference is not None else ()
    source = next(_sources(report), "")
    return replace(made, kind="wrong", error=text[:_LONGEST], line=source, branch=branch, larger=larger, other=other)


def _nearest_wrong(report: Report, reference: Reference) -> tuple[tuple[str, int], ...]:
    """The sizes of the wrong comparison that are nearest to the example's, none of them 1 unless it is in the example.

    Torch decides by a size of 1, as by no other.
    """
    example = reference.oracle.example
    wrong = (one.sizes for one in report.checks if not one.ok and one.kind != "example")
    fit = [sizes for sizes in wrong if sizes and all(size > 1 or size == example.get(n) for n, size in sizes.items())]
    far = [sum(abs(math.log(size / max(example.get(n, 1), 1))) for n, size in sizes.items()) for sizes in fit]
    return tuple(fit[far.index(min(far))].items()) if fit else ()


def _largest(sizes: Iterable[dict[str, int]]) -> tuple[tuple[str, int], ...]:
    """Of each dimension the largest."""
    found: dict[str, int] = {}
    for one in sizes:
        found |= {name: max(size, found.get(name, 0)) for name, size in one.items()}
    return tuple(found.items())


def _sources(report: Report) -> Iterator[str]:
    """Lines of the model that the report names, the likeliest first."""
    yield from (guard.source for guard in report.guards if guard.harmful and guard.source)
    yield from (frozen.source for frozen in report.frozen if frozen.source)


def _decides(reference: Reference | None, wanted: Container[str]) -> bool:
    """Whether eager branches on data or sizes, or a function that ran has a line of these kinds; True if not known."""
    if reference is None or reference.decisions is None:
        return True
    made, ran = reference.decisions, reference.eager.sides.functions
    rows = made.rows and kinds.LOOP_ROWS in wanted
    return (
        rows
        or bool(made.signature or made.sizes.comparisons)
        or any(found.kind in wanted for one in ran for found in kinds.in_function(one.code))
    )


def _path(module: str) -> str:
    return module.removeprefix("in module ").partition(" ")[0]


def _place(line: str) -> str:
    """`FILE:LINE` of `at FILE:LINE in FUNCTION`."""
    return line.rpartition("at ")[2].partition(" in ")[0]


def _stand_in_of(error: BaseException, patches: Sequence[Patch]) -> str:
    """The name of the patch whose stand-in raised the error; "" for none.

    Functions in the file of a stand-in belong to it. A stand-in that calls a module of the model is not at fault for an
    error in that module. Errors of torch.jit.script have no frames of the model: the last line in their text counts.
    """
    places = {code: patch.name for patch in patches for code in _codes(patch.stand_in)}
    files = {code.co_filename: patch.name for patch in patches for code in _codes(patch.stand_in)}
    # From the root cause outwards: the errors around it are the exporter's own.
    for one in reversed(error_chain(error)):
        name = None
        for frame, _ in frames_of(one):
            name = _owner(frame, name, places, files)
        if name is not None:
            return name
        named = _IN_TEXT.findall(str(one))
        if named and named[-1][0] in files:
            return _nearest(patches, named[-1][0], int(named[-1][1]))
    return ""


def _owner(frame: FrameType, before: str | None, places: dict[CodeType, str], files: dict[str, str]) -> str | None:
    """The patch that a frame belongs to; "" for the model's code; `before` for code of a library."""
    if frame.f_code in places:
        return places[frame.f_code]
    if before and files.get(frame.f_code.co_filename):
        return before
    return "" if is_user_frame(frame) else before


def _codes(stand_in: object) -> Iterator[CodeType]:
    """The code objects of a stand-in: of the function, or of the class's methods."""
    if not isinstance(stand_in, type):
        unwrapped = inspect.unwrap(stand_in) if callable(stand_in) else stand_in
        code = getattr(unwrapped, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        return
    # Without `object`, which ends every __mro__, and torch's own classes: their code is no patch's.
    for cls in (cls for cls in stand_in.__mro__[:-1] if cls.__module__.partition(".")[0] != "torch"):
        for value in vars(cls).values():
            code = getattr(getattr(value, "__func__", value), "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _nearest(patches: Sequence[Patch], file: str, line: int) -> str:
    """The patch whose code starts last before a line of a file."""
    starts = [
        (code.co_firstlineno, patch.name)
        for patch in patches
        for code in _codes(patch.stand_in)
        if code.co_filename == file and code.co_firstlineno <= line
    ]
    return max(starts, default=(0, ""))[1]
