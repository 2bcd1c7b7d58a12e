"""Parts of a model tried alone by the doctor: captured before they are translated, from the smallest up, pointed at by
an export that did not end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from onnxpatch import doctor
from onnxpatch.diagnosis.part_export import attempt, check_captured
from onnxpatch.diagnosis.parts import search
from onnxpatch.diagnosis.parts.isolated_module import case_of, record
from onnxpatch.diagnosis.parts.module_calls import Unit, call_tree
from onnxpatch.diagnosis.parts.search import named_parts
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.probe import Probe
from tests.diagnosis.failing_models.hosts import Flat, Net
from tests.diagnosis.failing_models.parts import WIDTH, Branch, BranchOnSize, Padded, Sound
from tests.diagnosis.failing_models.written import LENGTH, _eight, _tokens

pytestmark = pytest.mark.exports


def _subject(model: nn.Module, example: Tensor, *others: Tensor) -> Subject:
    probes = [
        Probe(str(tuple(x.shape)), "size", {}, [x], tuple(t for t in (model(x),)))
        for x in (example, *others)
    ]  # fmt: skip
    return Subject(model, Inputs(model, (example,)), [{1: Dim.AUTO}], probes)


def _lengths(*lengths: int) -> list[Tensor]:
    return [torch.randn(2, n, WIDTH, generator=torch.Generator().manual_seed(n)) for n in lengths]


class Asserting(Sound):
    """Its condition holds at the example, and is no part of what it computes."""

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] % 2 == 0
        return self.proj(x)


@torch.no_grad()
def test_a_captured_program_is_judged_without_its_asserts() -> None:
    model = Asserting().eval()
    subject = _subject(model, *_lengths(4, 8))
    trial = attempt(subject, "dynamo", 18, quick=True)
    odd = _lengths(5)[0]
    probe = Probe("odd", "size", {}, [odd], (model.proj(odd),))
    (check,) = check_captured(trial.captured, [probe], 1e-3, lambda _: None)
    assert check.status == "right", check


@torch.no_grad()
def test_a_part_that_is_wrong_as_captured_is_not_translated() -> None:
    trial = attempt(_subject(BranchOnSize().eval(), *_lengths(4, 9)), "dynamo", 18, quick=True)
    assert (trial.status, trial.untranslated, trial.program) == ("silent", True, None)
    assert trial.wrong_at() == {"(2, 9, 8)"} and "torch.export at" in trial.error


@torch.no_grad()
def test_a_part_that_is_right_as_captured_is_held_against_its_graph_too() -> None:
    trial = attempt(_subject(Sound().eval(), *_lengths(4, 9)), "dynamo", 18, quick=True)
    assert trial.status == "right" and not trial.untranslated and trial.graph is not None


@torch.no_grad()
def test_an_export_that_did_not_end_points_at_the_conditions_it_had_settled() -> None:
    model = Net(BranchOnSize).eval()
    subject = _subject(model, *_lengths(4, 9))
    whole = attempt(subject, "dynamo", 18, quick=True)
    cut = Trial("slow", size_conditions=whole.size_conditions, symbols=whole.symbols)
    units = named_parts(call_tree(model, subject.inputs), cut, subject)
    assert [unit.path for unit in units] == ["blocks.1.part"]


class Remembering(Sound):
    """One of its methods needs what another has set."""

    def begin(self, x: Tensor) -> Tensor:
        self.scale = 2.0
        return x

    def end(self, x: Tensor) -> Tensor:
        scale, self.scale = self.scale, None
        return self.proj(x) * scale


def test_what_does_not_run_by_itself_is_no_part_to_try() -> None:
    inner = Remembering().eval()
    x = _lengths(4)[0]

    class Host(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner.end(self.inner.begin(x))

    host = Host().eval()
    probes = [Probe("example", "example", {}, [x], (host(x),))]
    units = [Unit("inner", inner, "begin"), Unit("inner", inner, "end")]
    calls = record(host, Inputs(host, (x,)), probes, units)
    inner.scale = None
    begin, end = (case_of(unit, calls[unit.key], probes, 0) for unit in units)
    assert begin is not None and end is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "args", "path", "status"),
    [(Net(Branch), _tokens, "blocks.1.part", "refused"), (Flat(Padded), _eight, "part", "silent")],
    ids=["refused", "silent"],
)
def test_the_smallest_part_is_found_from_below(
    model: nn.Module, args: Any, path: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_LONG", 0.0)
    monkeypatch.setattr(search.Search, "_from_pointed", lambda search: [])
    found = doctor(model.eval(), args(), dynamic_shapes=LENGTH, proposals=False)
    assert [(one.path, one.status) for one in found.culprits] == [(path, status)]
