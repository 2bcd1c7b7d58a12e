"""The doctor names the part that is to blame, its line, and what cures it; and leaves the model as it was."""

from __future__ import annotations

import json
import logging
import signal
import warnings
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch import doctor
from onnxpatch.diagnosis.lines import constructs
from tests.diagnosis.failing_models import CASES, Ailing
from tests.diagnosis.failing_models.hosts import Flat, Net
from tests.diagnosis.failing_models.joined import Vision
from tests.diagnosis.failing_models.parts import Branch, RootOfLength, Sound, Values
from tests.diagnosis.failing_models.written import BATCH, LENGTH, _image, _tokens
from tests.fingerprint import fingerprint

pytestmark = pytest.mark.exports

# One of each kind in the quick tier: an export by torch.export takes a second or two of a processor.
HERE = Path(__file__).parent / "failing_models"
QUICK = {"branch-list", "padded"}


def _marked(case: Ailing) -> Any:
    quick = case.exporter != "dynamo" or case.name in QUICK
    return pytest.param(case, id=f"{case.exporter}-{case.name}", marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("case", [_marked(case) for case in CASES])
def test_the_true_culprit_is_named(case: Ailing) -> None:
    first = assert_named(case)
    if case.code:
        assert first.source.startswith(str(HERE)), first


def assert_named(case: Ailing) -> onnxpatch.Culprit:
    """The first culprit, which must be the true one, by path, status, line and operator."""
    model = case.build().eval()
    found = doctor(
        model, case.args(), dynamic_shapes=case.dynamic_shapes, exporter=case.exporter, data=case.data, proposals=False
    )
    assert found.culprits, f"nothing was found: {found}"
    first = found.culprits[0]
    assert (first.path, first.status) == (case.path, case.status), str(found)
    line = any(part in first.code for part in (case.code, *case.others))
    assert line and case.operator in first.operator, str(found)
    return first


def test_a_right_export_has_no_culprit() -> None:
    found = doctor(Net(Sound).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", registry=onnxpatch.Registry())
    assert found.ok and found.status == "right" and not found.culprits
    assert found.exports == 1
    assert "right at every size" in str(found)


@pytest.mark.parametrize("exporter", ["trace", "script", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_the_model_comes_back_as_it_was(exporter: Any) -> None:
    model = Net(Branch).eval()
    model(*_tokens())
    before, level = fingerprint(model), logging.root.manager.disable
    handler, showing = signal.getsignal(signal.SIGALRM), warnings.showwarning
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    doctor(model, _tokens(), dynamic_shapes=LENGTH, exporter=exporter, registry=onnxpatch.Registry())
    assert fingerprint(model) == before
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert logging.root.manager.disable == level and warnings.showwarning is showing
    assert signal.getsignal(signal.SIGALRM) is handler


def test_equal_blocks_are_tried_once_and_named_together() -> None:
    model = nn.Sequential(Sound(), RootOfLength(), RootOfLength(), RootOfLength()).eval()
    found = doctor(model, _tokens(), dynamic_shapes=LENGTH, exporter="trace", proposals=False)
    assert [c.path for c in found.culprits] == ["1"]
    assert found.culprits[0].also == ("2", "3")
    assert found.exports == 4  # the model, Sound, RootOfLength, and the Linear inside it


def test_both_of_two_faults_are_named() -> None:
    model = nn.Sequential(Branch(), Sound(), RootOfLength()).eval()
    found = doctor(model, _tokens(), dynamic_shapes=LENGTH, exporter="trace", proposals=False)
    assert {c.path for c in found.culprits} == {"0", "2"}
    assert {c.construct for c in found.culprits} == {constructs.BRANCH_TENSOR, constructs.NUMBER_SIZE}


# ------------------------------------------------------------------ ways out
class Cured:
    """Stand-in for RootOfLength, whatever the length."""

    def forward(self, x: Tensor) -> Tensor:
        length = torch.ones_like(x[0, :, 0]).sum()
        below = torch.arange(x.shape[1]) < length.sqrt().floor()
        weights = below.to(x.dtype) / below.sum()
        return self.proj(x) + (x * weights[:, None]).sum(1, keepdim=True)


def _registry(*, target: str, stand_in: Any, name: str) -> onnxpatch.Registry:
    registry = onnxpatch.Registry()
    onnxpatch.patch(target, name=name, why="for a test", registry=registry)(stand_in)
    return registry


def test_the_patch_that_cures_it_is_proposed_after_it_was_tried() -> None:
    registry = _registry(
        target="tests.diagnosis.failing_models.parts.RootOfLength", stand_in=Cured, name="root-of-length"
    )
    onnxpatch.patch("torch.tanh", name="idle", why="takes no part", registry=registry)(lambda original, x: original(x))
    found = doctor(Net(RootOfLength).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", registry=registry)
    best = found.proposals[0]
    assert (best.kind, best.name, best.tried, best.whole) == ("patch", "root-of-length", True, True)


def test_without_a_patch_it_says_none_known_and_what_to_write() -> None:
    found = doctor(
        Flat(Values).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", registry=onnxpatch.Registry()
    )
    kinds = {p.kind for p in found.culprits[0].proposals}
    assert {"rewrite", "none", "decorator"} <= kinds


def test_branches_are_proposed_for_a_branch() -> None:
    found = doctor(
        Flat(Branch).eval(), _tokens(), dynamic_shapes=BATCH, exporter="trace", registry=onnxpatch.Registry()
    )
    tried = {p.kind: p for p in found.culprits[0].proposals if p.tried}
    assert "branches" in tried and tried["branches"].whole


def test_a_patch_that_makes_it_wrong_is_found_by_bisection() -> None:
    class Doubled:
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.proj(x)) * 2

    registry = _registry(target="tests.diagnosis.failing_models.parts.Sound", stand_in=Doubled, name="doubled")
    onnxpatch.patch("torch.nn.functional.gelu", name="harmless", why="right", registry=registry)(
        lambda original, *args, **kwargs: original(*args, **kwargs)
    )
    found = doctor(Flat(Sound).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", registry=registry)
    assert not found.ok and found.status == "right"
    assert {c.construct for c in found.culprits} == {"the patch 'doubled'"}
    assert found.culprits[0].status == "patch" and found.proposals[0].kind == "exclude"


def test_a_patch_is_not_blamed_for_what_took_too_long() -> None:
    class Waits:
        def forward(self, x: Tensor) -> Tensor:
            while torch.jit.is_tracing():
                x = x + 0
            return self.proj(x)

    registry = _registry(target="tests.diagnosis.failing_models.parts.Sound", stand_in=Waits, name="waits")
    found = doctor(Flat(Sound).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", registry=registry, budget=4)
    assert found.status == "right" and not found.culprits


# ------------------------------------------------------------------ the report
def test_the_diagnosis_reads_as_text_json_and_markdown() -> None:
    found = doctor(Net(RootOfLength).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", proposals=False)
    told = json.loads(found.to_json())
    assert told["schema"] == 1 and told["ok"] is False
    assert told["culprits"][0]["path"] == "blocks.1.part"
    for text, code in ((str(found), "int(x.shape[1] ** 0.5)"), (found.to_markdown(), r"int(x.shape\[1\] \*\* 0.5)")):
        assert "blocks.1.part (RootOfLength)" in text and code in text
    assert found.to_markdown().startswith("### Net: exports without an error, but the graph is wrong")


def test_progress_is_told_and_the_budget_ends_the_search() -> None:
    seen: list[str] = []
    found = doctor(
        Net(RootOfLength).eval(), _tokens(), dynamic_shapes=LENGTH, exporter="trace", budget=0.0,
        progress=lambda what, done, of: seen.append(what),
    )  # fmt: skip
    assert seen == ["the whole model"]
    assert found.culprits[0].path == "" and "budget" in found.notes[0]


class Endless(Sound):
    def forward(self, x: Tensor) -> Tensor:
        while torch.jit.is_tracing():
            x = x + 0
        return self.proj(x)


def test_an_export_that_does_not_end_is_cut_off() -> None:
    found = doctor(Flat(Endless).eval(), _tokens(), exporter="trace", proposals=False, budget=4.0)
    assert found.status == "slow"
    assert found.seconds < 40


def test_bad_input_is_refused_with_a_reason() -> None:
    with pytest.raises(onnxpatch.InputError, match=r"must be a torch\.nn\.Module, not str"):
        doctor("model", ())  # type: ignore[arg-type]
    with pytest.raises(onnxpatch.UnknownExporterError, match="is not known: use one of"):
        doctor(Sound().eval(), _tokens(), exporter="jit")  # type: ignore[arg-type]
    with pytest.raises(onnxpatch.InputError, match="refuses the example"):
        doctor(Sound().eval(), (torch.randn(2, 5),))


def test_numbers_that_a_module_gets_travel_as_sizes() -> None:
    """Grid takes its height and width as Python numbers: alone it must stay right at other sizes."""
    from tests.diagnosis.failing_models.joined import Grid

    class Plain(nn.Module):
        def forward(self, x: Tensor, height: int, width: int) -> Tensor:
            return x

    found = doctor(Vision(Plain).eval(), _image(), dynamic_shapes=({2: "h", 3: "w"},), exporter="trace")
    assert found.ok, str(found)
    assert isinstance(Vision(Plain).grid, Grid) and onnxruntime.__version__


def test_a_diagnosis_starts_from_the_attempts_that_were_made() -> None:
    model, args = Flat(Branch).eval(), _tokens()
    report = onnxpatch.export(model, args, dynamic_shapes=LENGTH, exporter="trace")
    assert [one.delivered for one in report.attempts] == [False, True] and report.attempts[1].branches
    alone = doctor(model, args, dynamic_shapes=LENGTH, exporter="trace")
    found = doctor(model, args, dynamic_shapes=LENGTH, exporter="trace", attempts=report.attempts)
    assert (
        found.proposals[0].kind == "export" and found.proposals[0].whole and "branches=True" in found.proposals[0].text
    )
    assert found.exports <= alone.exports
    forked = next(one for one in found.proposals if one.kind == "branches")
    assert forked.whole is True
