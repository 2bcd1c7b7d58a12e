"""Decides what is tried next from the failures so far.

    1  as asked
    2  a stand-in raised the error, or a patch was found at fault:  without that patch
    3  torch alone:                                                 plain
    4  a Python branch or loop on data or a size failed:            branches=True (or False)
    5  exporter="auto":                                             the other exporter, in the same order

Attempts that would fail in the same way are left out. If torch refused a branch on data in the model's own code,
plain would stop at the same line: then branches=True comes first, and plain only if a patch acted, which may have
caused the branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnxpatch.attempts.attempt import Attempt
from onnxpatch.attempts.failure import Failure
from onnxpatch.settings import Exporter

_MOST_LEFT_OUT = 4  # patches; with more, plain is faster


def next_attempt(
    asked: Attempt, exporters: Sequence[Exporter], failed: Sequence[Failure], bounded: bool = False
) -> Attempt | None:
    """The next attempt; None if no other can help.

    asked: the first one. exporters: those that may be tried, in their order. failed: oldest first. bounded: whether a
    file was made that is wrong at the smallest sizes only: then branches=True, which may take long, is left out.
    """
    if failed and failed[-1].kind == "late":  # max_seconds is over
        return None
    tried = {one.attempt for one in failed}
    for exporter in exporters:
        mine = [one for one in failed if one.attempt.exporter == exporter]
        for attempt in _ways(replace(asked, exporter=exporter), mine):
            if attempt not in tried and not (bounded and attempt.branches and not asked.branches):
                return attempt
    return None


def _ways(first: Attempt, failed: Sequence[Failure]) -> Iterator[Attempt]:
    """The attempts with one exporter that make sense after these failures, in order, including the failed ones."""
    yield first
    for one in failed:
        if one.at_fault and len(one.attempt.exclude) < _MOST_LEFT_OUT:
            yield one.attempt.without(one.at_fault)
    # The patches that were found at fault stay out of the other ways too.
    base = next((one.attempt for one in reversed(failed) if not one.attempt.plain), first)
    if not failed:
        return
    if first.branches:
        # branches=True runs more of the model's code, and may refuse what is not needed.
        yield replace(base, branches=False)
    if not _plain_is_hopeless(failed):
        yield first.as_plain()
    # torch.jit.script compiles branches itself.
    if any(one.branch for one in failed) and first.exporter != "script":
        yield replace(base, branches=True)
        if any(one.patches for one in failed):
            yield first.as_plain()


def _plain_is_hopeless(failed: Sequence[Failure]) -> bool:
    """Whether plain would fail the same way.

    torch refused a branch on data; or no patch acted on a graph that is wrong, or has an operator without translation.
    """
    patched = [one for one in failed if not one.attempt.plain and not one.attempt.branches]
    untouched = [one for one in patched if not one.patches]
    return any(one.on_data for one in patched) or any(one.kind == "wrong" or one.operator for one in untouched)
