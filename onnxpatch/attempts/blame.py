"""Finds the patch that spoils an export which plain torch.onnx.export gets right, by leaving patches out."""

from __future__ import annotations

from collections.abc import Sequence

from onnxpatch.attempts.attempt_log import AttemptLog
from onnxpatch.attempts.failure import Failure
from onnxpatch.attempts.one_attempt import Proven
from onnxpatch.diagnosis.cures.patch_bisect import fewest

_TRIES = 8  # exports at most


def better_than_plain(log: AttemptLog, plain: Proven) -> tuple[Proven, str]:
    """(the file to deliver, a note that names the patches at fault), if plain is right and the patched file is not.

    The file to deliver is the export without just these patches, if it is right; else the plain one.
    """
    patched = [one for one in log.failed if _is_like(one, plain)]
    if not patched:
        return plain, ""
    last = patched[-1]
    suspects = list(last.patches)
    known = tuple(name for one in patched for name in one.at_fault)
    if not suspects:
        return plain, _note(known, patched[0]) if known else ""
    # Each try is an export: with one patch the answer is known.
    guilty = suspects if len(suspects) == 1 else fewest(suspects, lambda some: _fails(log, last, some), _TRIES)
    found = tuple(dict.fromkeys((*known, *guilty)))
    note = _note(found, patched[0])
    if len(guilty) == len(suspects) or log.over:  # without them no patch acts: that is the plain export
        return plain, note
    attempt = last.attempt.without(guilty)
    # The search may have made this very attempt on its way.
    outcome = log.outcome_of(attempt) or log.attempt(attempt)
    return (outcome if isinstance(outcome, Proven) else plain), note


def _is_like(failure: Failure, plain: Proven) -> bool:
    """Whether an attempt differs from the plain one in its patches only."""
    made = failure.attempt
    # branches=True changes more than the patches: such a failure tells nothing about them.
    return made.exporter == plain.attempt.exporter and not made.plain and not made.branches


def _fails(log: AttemptLog, last: Failure, some: Sequence[str]) -> bool:
    """Whether the export fails or is wrong with these patches alone."""
    if log.over:
        return False
    attempt = last.attempt.without(name for name in last.patches if name not in some)
    return isinstance(log.outcome_of(attempt) or log.attempt(attempt), Failure)


def _note(names: Sequence[str], failure: Failure) -> str:
    what = "patches" if len(names) > 1 else "patch"
    return (
        f"the {what} {', '.join(map(repr, names))} made this export worse, and plain torch.onnx.export is right "
        f"({failure.error}): this report is what its author needs"
    )
