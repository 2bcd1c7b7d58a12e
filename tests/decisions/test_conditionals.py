"""Which sides of its conditions a function took, told from its jumps; and which conditions an input can turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.untried import untried
from tests.decisions import asking_models as models


def _sides(model: nn.Module, *calls: tuple[Any, ...]) -> list[str]:
    """What is named after these calls: `line of the class: side`."""
    eager = Eager(model, Inputs(model, calls[0]))
    probes = []
    for args in calls:
        answer = eager.ask(list(Inputs(model, args).values()))
        assert answer.outputs is not None, answer.error
        probes.append(Probe("", "", {}, [], answer.outputs, taken=answer.taken))
    return [one.side for one in untried(eager.sides, probes)]


X, FAR = torch.ones(2, 3), torch.full((2, 3), 9.0)
CHOSEN = ["max(n, 100) is n", "n is one of the keys", "int(f'{n:04d}'[1]) is not 0"]
CASES: list[tuple[type[nn.Module], list[tuple[Any, ...]], list[str]]] = [
    (models.OnData, [(X,)], ["x.sum() > 10"]),
    (models.OnData, [(X,), (FAR,)], []),
    (models.OnSize, [(X,)], ["x.shape[0] > 2"]),
    (models.Fixed, [(X,)], []),
    (models.Raises, [(X,)], []),
    (models.Parts, [(X,)], ["n > 2"]),
    (models.Parts, [(X,), (torch.ones(4, 3),)], ["x.sum() > 20"]),
    (models.Value, [(X,)], ["x.max() <= 0"]),
    (models.Chosen, [(X,)], ["x.sum() <= 0"]),
    (models.Listed, [(X,)], ["sum(row) > 10"]),
    (models.Loop, [(X,)], ["n > 2"]),
    (models.Between, [(X,)], ["not (1 < n < 5)"]),
    (models.Handed, [(X,)], ["flag", "bool((x > 5).any())"]),
    (models.Cases, [(X,)], ["case 3"]),
    (models.Caught, [(X,)], ["RuntimeError is raised"]),
    (models.Assigned, [(X,)], ["x.shape[0] > 5"]),
    (models.Assigned, [(X,), (torch.ones(6, 3),)], []),
    (models.Through, [(X,)], ["scale is not None"]),
    (models.Returned, [(X,)], ["kept is None"]),
    (models.Given, [(X,)], []),
    (models.Kept, [(X,)], ["self.length > 3"]),
    # The length is the same in both: no text is made of another one.
    (models.WithoutIf, [(X,), (FAR,)], [one for one in CHOSEN if "04d" not in one]),
    (models.WithoutIf, [(X,), (torch.ones(6, 3),)], [*CHOSEN, "bool((x > 5).any())", "float(row[0] > 7)"]),
    (models.WithoutIf, [(X,), (FAR,), (torch.ones(200, 3),), (torch.ones(40, 3),)], []),
]


@pytest.mark.parametrize("model, calls, sides", CASES, ids=[f"{one[0].__name__}-{len(one[1])}" for one in CASES])
def test_sides_that_did_not_run(model: type[nn.Module], calls: list[tuple[Any, ...]], sides: list[str]) -> None:
    assert _sides(model(), *calls) == sides


def _pythons() -> list[str]:
    """Interpreters beside this one, from 3.12 on by the other way of watching."""
    found = [Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep)
             for name in ("python3.12", "python3.13", "python3.14")]  # fmt: skip
    versions = Path.home() / ".pyenv" / "versions"
    found += [one / "bin" / "python" for one in sorted(versions.glob("3.1[234]*"))]
    works = [
        str(one)
        for one in found
        if one.exists() and not subprocess.run([one, "-c", ""], capture_output=True).returncode
    ]
    return list(dict.fromkeys(works))[:3]


@pytest.mark.skipif(not _pythons(), reason="sys.monitoring needs Python 3.12, and there is none beside this one")
def test_both_ways_of_watching_see_the_same() -> None:
    script = Path(__file__).with_name("watched_alone.py")
    here = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    for python in _pythons():
        assert subprocess.run([python, script], capture_output=True, text=True, check=True).stdout == here, python


def test_what_looking_would_change_is_not_looked_at() -> None:
    model = models.UsedUp().eval()
    answer = Eager(model, Inputs(model, (X,))).ask([X])
    assert answer.outputs is not None, answer.error
    assert torch.equal(answer.outputs[0], models.UsedUp()(X))
