"""Conditions on sizes that torch.export settled on its way, and the lines of a part's own code at which it did."""

from __future__ import annotations

import inspect
import math
import re

import torch

from onnxpatch.checking.probe import Probe
from onnxpatch.diagnosing.calls import Unit
from onnxpatch.diagnosing.trial import Place, Trial


def settled(unit: Unit, trial: Trial, probe: Probe | None = None) -> list[Place]:
    """Lines of the unit at which a condition on sizes was fixed, best first: one that the wrong size breaks."""
    mine = [(c, p) for c, p in trial.settled if p.module is unit.module or belongs(p, unit)]
    symbols = _symbols(trial, probe) if probe is not None else {}
    broken = [p for c, p in mine if symbols and _holds(c, symbols) is False]
    if broken:
        return broken[:1]
    equal = [p for c, p in mine if re.fullmatch(r"Eq\(.+, \d+\)", c)]
    plain = [p for c, p in mine if not c.startswith("Ne(")]
    return (equal or plain)[:1] if probe is None or not symbols else []


def _symbols(trial: Trial, probe: Probe) -> dict[str, int]:
    from onnxpatch._torch import size_conditions

    program = getattr(trial.program, "exported_program", None)
    if program is None:
        return {}
    places, _ = size_conditions(program)
    tensors = [v for v in probe.values if isinstance(v, torch.Tensor)]
    return {str(s): int(tensors[i].shape[axis]) for (i, axis), s in places.items() if i < len(tensors)}


def _holds(condition: str, symbols: dict[str, int]) -> bool | None:
    from onnxpatch.checking.guards import _FUNCTIONS

    names = {**_FUNCTIONS, "FloatPow": math.pow, "TruncToInt": math.trunc}
    try:
        return bool(eval(condition, {"__builtins__": {}, **names}, dict(symbols)))
    except Exception:
        return None


def belongs(place: Place, unit: Unit) -> bool:
    """Whether a line stands in a file that the unit's code comes from."""
    return any(place.file == file for file, _, _ in _spans(unit))


def _spans(unit: Unit) -> list[tuple[str, int, int]]:
    """(file, first line, last line) of the classes that the unit's code comes from."""
    spans = []
    for cls in type(unit.module).__mro__:
        try:
            lines, first = inspect.getsourcelines(cls)
            file = inspect.getsourcefile(cls) or ""
        except (OSError, TypeError):
            continue
        if not file.endswith("/torch/nn/modules/module.py"):
            spans.append((file, first, first + len(lines)))
    return spans
