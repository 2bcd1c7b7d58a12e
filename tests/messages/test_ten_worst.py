"""The messages that new users stumbled over: each is provoked for real, and says what was found and what to do."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.errors import ExportError, InputError, UnknownPatchError, VerificationError
from onnxpatch.exporters.exported import reason
from onnxpatch.messages.text import WIDTH
from onnxpatch.results.checks import AttemptResult, Checked, DroppedGuard, Frozen, RightWithin, Untried
from onnxpatch.results.report import Report

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))
import record_messages  # noqa: E402

pytestmark = pytest.mark.exports

X = torch.randn(2, 3)


class Twice(nn.Module):
    def forward(self, x: torch.Tensor, more: Any = None) -> torch.Tensor:
        return x * 2


class TwoForTheFile(nn.Module):
    """Gives its inner state as well, but to an exporter alone."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x * 2
        return (y, y + 1) if torch.onnx.is_in_onnx_export() else y


class Raising(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            raise ValueError("cannot be traced")
        return x


def refused(error: type[Exception], *args: Any, **given: Any) -> str:
    with pytest.raises(error) as raised:
        onnxpatch.export(*args, **given)
    return str(raised.value)


def test_a_pattern_that_fits_no_patch_names_the_nearest_and_not_all() -> None:
    with pytest.raises(
        UnknownPatchError, match=r"(?s)^'interpolte' is neither .*;\s+did you mean 'interpolate'"
    ) as raised:
        onnxpatch.plan(Twice().eval(), only="interpolte")
    assert len(str(raised.value)) < 250


def test_long_words_of_an_exporter_end_at_a_word() -> None:
    said = reason(RuntimeError("Could not guard on it. " * 40 + "\nFor more information, run with TORCH_LOGS=x"))
    assert said.endswith("…") and said.removesuffix(" …").split()[-1] in {"Could", "not", "guard", "on", "it."}
    assert reason(RuntimeError("no\nFor extended logs we suggest TORCHDYNAMO_EXTENDED_DEBUG=1")) == "RuntimeError: no"


def test_an_argument_of_an_unknown_class_says_what_can_be_given() -> None:
    class Odd:
        keys = torch.ones(2, 3)

    said = refused(InputError, Twice().eval(), (X, Odd()), dynamic_shapes=({0: "b"}, {0: "b"}))
    assert "more" in said and "Odd" in said and "register" in said


@pytest.mark.parametrize("body_is_copied", [False, True])
def test_a_scan_whose_body_returns_what_it_was_given(body_is_copied: bool) -> None:
    from torch._higher_order_ops.scan import scan

    class Summing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def add(total: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                total = total + row
                return total, total.clone() if body_is_copied else total

            return scan(add, torch.zeros(3), x)[1]

    if body_is_copied:
        assert onnxpatch.export(Summing().eval(), (X,), attempts="asked").ok
    else:
        said = refused(InputError, Summing().eval(), (X,), attempts="asked")  # eager refuses it as well
        assert "aliasing" in said and "x.clone()" in said


def test_another_number_of_outputs_names_them_and_the_option_that_helps() -> None:
    model = TwoForTheFile().eval()
    said = refused(VerificationError, model, (X,), exporter="trace", attempts="asked")
    assert "the file has 2 of the outputs" in said and "the model returns 1 tensor" in said and "flatten=" in said
    assert onnxpatch.export(model, (X,), exporter="trace", flatten=lambda y: [y, y + 1]).ok


def test_without_onnxruntime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = refused(InputError, Twice().eval(), (X,), runtime="onnxruntime")
    assert said.startswith("onnxruntime is not installed: pip install")


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_a_refusal_names_exporter_model_module_and_line_once(exporter: str) -> None:
    said = refused(ExportError, nn.Sequential(Raising()).eval(), (X,), exporter=exporter, attempts="asked")
    first, where, *_ = said.splitlines()
    assert first == f"{exporter} export refused Sequential: ValueError: cannot be traced"
    assert where.startswith("  in module 0 (Raising) at ") and f"{Path(__file__).name}:" in where
    assert said.count("in module") == 1


def test_a_diagnosis_without_a_cure_goes_on_to_what_can_be_done() -> None:
    said = str(onnxpatch.doctor(nn.Sequential(Raising()).eval(), (X,)))
    assert "none known" not in said and "no registered patch cures it" not in said
    assert "onnxpatch.onnx_forward" in said or "nothing that was tried cures it" in said


def test_a_session_counts_inputs_in_good_english() -> None:
    shape = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["B", 3]) for name in ("x", "y")]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    opset = onnx.helper.make_opsetid("", 18)
    made = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", shape[:1], shape[1:]), opset_imports=[opset], ir_version=9
    )
    file = io.BytesIO(made.SerializeToString())
    with pytest.raises(InputError, match=r"2 inputs given; the graph takes 1: x float32\[B,3\]"):
        onnxpatch.Session(file.getvalue())(X, X)


def test_the_page_says_what_was_recorded() -> None:
    kept = json.loads((DOCS / "messages.json").read_text(encoding="utf-8"))
    assert (DOCS / "messages.md").read_text(encoding="utf-8") == record_messages.written(kept)
    for case in record_messages.CASES:
        most = {"reports": 10 if "diagnosis" in case.title else 8, "errors": 6}[case.kind]
        now = kept[case.title]["now"].splitlines()
        assert now and len(now) <= most, case.title
        assert max(map(len, now)) <= WIDTH, case.title


@pytest.mark.slow  # twenty exports
@pytest.mark.parametrize("case", record_messages.CASES, ids=lambda case: case.title)
def test_each_still_says_so(case: record_messages.Case) -> None:
    """But for numbers (seconds, errors, lines of the file that records), and for where a line is cut."""
    kept = json.loads((DOCS / "messages.json").read_text(encoding="utf-8"))[case.title]["now"]
    pairs = itertools.zip_longest(record_messages.said(case).splitlines(), kept.splitlines(), fillvalue="")
    for now, then in (tuple(re.sub(r"[-\d.e+]*\d", "0", one) for one in pair) for pair in pairs):
        same = min((len(one) - 1 for one in (now, then) if one.endswith("…")), default=None)
        assert now[:same] == then[:same]


# ------------------------------------------------------------------ how long a report is
LONG = "words that go on and on, as those of torch do, " * 9
TRIED = [AttemptResult(f"way {i}", "dynamo", 18, verdict="wrong", error=LONG) for i in range(7)]
PARTS: list[dict[str, Any]] = [
    {"attempts": TRIED, "call": "onnxpatch.export(model, ..., branches=True)"},
    {"bounds": {"batch": "batch >= 3 (wrong at 1, 2)", "length": "length in multiples of 4, 4 or more"}},
    {"untried": [Untried(f"net.py:{i}", LONG, LONG, "x") for i in range(3)], "sides_recorded": True},
    {"first_call": [f"self.state{i} (net.py:9)" for i in range(9)]},
    {"draws": ["net.py:7: torch.randn"]},
    {"notes": [LONG, LONG]},
    {"plan": [{"patch": f"patch{i}", "path": LONG[:90], "class": "Linear"} for i in range(5)]},
    {"frozen": [Frozen("batch", LONG, "/Reshape", "Reshape", "net.py:3")] * 3},
    {"guards": [DroppedGuard("batch <= 2", {"batch": 3}, True, "net.py:4")]},
    {"right_within": [RightWithin("batch", "Dim('batch', max=2)", LONG)]},
    {"compare": "cosine"},
]


@pytest.mark.parametrize("wrong", [False, True])
def test_a_report_has_few_lines_whatever_there_is_to_say(wrong: bool) -> None:
    checks = [Checked("onnxruntime", "example", "example", {"batch": 2})]
    checks += [Checked("onnxruntime", "batch=3", "size", {"batch": 3}, error=LONG, status="refused")] if wrong else []
    for count in (0, 1, 2, 3, len(PARTS)):
        for parts in itertools.combinations(PARTS, count):
            more = {name: value for part in parts for name, value in part.items()}
            report = Report("m.onnx", "Net", checks=checks, advice="type it" if wrong else "", **more)
            lines = str(report).splitlines()
            assert len(lines) <= (8 if wrong else 3) and max(map(len, lines)) <= WIDTH, (parts, lines)
            assert not wrong or lines[-1].startswith("next: "), (parts, lines)
