"""Compares two failed exports: does a part fail for the same reason as the whole model, or as the part around it?

Refusals are the same if they name the same operator or, where they name none, begin with the same words. A graph that
is wrong without an error has no reason to compare: any part that is wrong too will do.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxpatch.diagnosis.lines.line_bisect import first_words
from onnxpatch.diagnosis.lines.operator_lines import operator_in
from onnxpatch.diagnosis.parts.failing_part import FailingPart
from onnxpatch.diagnosis.trials.trial import Trial


def other_reason(trial: Trial, parent: Trial, exporter: str) -> bool:
    """Whether two refusals are about different operators, or, where they name none, in different words."""
    if "silent" in (trial.status, parent.status):
        return False
    operators = [operator_in(one).partition(".")[0] for one in (trial, parent)]
    # Words say nothing where a part fails with any sizes, nor with torch.jit.script, which compiles a class only once.
    compare_words = not operators[0] and exporter != "script" and not trial.fails_loose
    other_words = compare_words and first_words(trial.error) != first_words(parent.error)
    return operators[0] != operators[1] or other_words


def fails_alike(trial: Trial, whole: Trial, exporter: str, suspected: bool = False) -> bool:
    """Whether a part fails by itself as the whole model fails.

    Any failure counts where the whole export did not end; also of a `suspected` part, where the whole model's refusal
    names neither a line nor an operator.
    """
    if whole.status == "slow" or (suspected and not (whole.places or operator_in(whole))):
        return trial.status in ("silent", "refused")
    return trial.status == whole.status and not other_reason(trial, whole, exporter)


def explained(trial: Trial, parts: Iterable[FailingPart], exporter: str) -> bool:
    """Whether failing parts explain a failure: of a refusal, one refused for the same reason; else any part."""
    if trial.status != "refused":
        return any(True for _ in parts)
    return any(one.trial.status == "refused" and not other_reason(one.trial, trial, exporter) for one in parts)
