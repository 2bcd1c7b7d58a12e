"""From a diagnosis to what its page shows."""

from __future__ import annotations

import re
from typing import Any

import torch

from onnxpatch.html.excerpt import around
from onnxpatch.html.tree import rows
from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal

_VERDICTS = {"silent": "wrong", "slow": "too slow", "patch": "wrong with patches"}


def context(model: torch.nn.Module, diagnosis: Diagnosis) -> dict[str, Any]:
    """Everything that the template reads."""
    culprits = diagnosis.culprits
    return {
        "model": diagnosis.model,
        "verdict": verdict("patch" if culprits and diagnosis.status == "right" else diagnosis.status),
        "state": "good" if diagnosis.ok else "bad",
        "told": diagnosis.headline(),
        "diagnosis": diagnosis,
        "cures": list(dict.fromkeys(p.text for p in diagnosis.proposals if p.whole)),
        "error": "" if any(culprit.error == diagnosis.error for culprit in culprits) else diagnosis.error,
        "culprits": [_shown(culprit) for culprit in culprits],
        "rows": rows(model, _notes(culprits)),
    }


def _shown(culprit: Culprit) -> dict[str, Any]:
    return {
        "found": culprit,
        "verdict": verdict(culprit.status),
        "lines": around(culprit.source),
        "ways": [(way.text, *_outcome(way)) for way in culprit.proposals if way.kind != "none"],
        "none": next((way.text for way in culprit.proposals if way.kind == "none"), ""),
    }


def verdict(status: str) -> str:
    """A status in the words of the other pages: right, wrong, refused."""
    return _VERDICTS.get(status, status)


def _outcome(way: Proposal) -> tuple[str, str]:
    """How a way out came out when it was tried, and the class of its chip."""
    if way.whole:
        return "tried on the whole model: right", "good"
    if way.tried:
        return "tried on this part: right" + (", not enough for the whole model" if way.whole is False else ""), "half"
    return "not tried", "idle"


def _notes(culprits: list[Culprit]) -> dict[str, tuple[str, str]]:
    notes: dict[str, tuple[str, str]] = {}
    for culprit in culprits:
        for path in map(_module, culprit.also):
            notes.setdefault(path, ("culprit", f"as in {culprit.name}"))
    return notes | {_module(c.path): ("culprit", f"{verdict(c.status)}: {c.construct}") for c in reversed(culprits)}


def _module(path: str) -> str:
    """The module's path of a culprit's: a method that is called directly goes by `path.method()`."""
    path = re.sub(r"\.\w+\(\)$", "", path)
    return "" if path == "(root)" else path
