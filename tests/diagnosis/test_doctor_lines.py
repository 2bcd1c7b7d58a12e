"""How the doctor finds a line: the ways of two eager runs, statements, what is caught, parts stopped early."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onnxpatch import doctor
from onnxpatch.decisions.ask import Site, model_lines
from onnxpatch.diagnosis.lines import constructs, execution_trace
from onnxpatch.diagnosis.lines.constructs import LOOP_SIZE, in_function, statement_at
from onnxpatch.diagnosis.lines.execution_trace import changed_statements, trace_execution
from onnxpatch.diagnosis.lines.find_cause import caught_exception_lines
from onnxpatch.diagnosis.parts.isolated_module import case_of, record
from onnxpatch.diagnosis.parts.module_calls import Unit
from onnxpatch.diagnosis.trial import Subject, Trial
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.patching.registry import Registry
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe
from tests.diagnosis.failing_models import libraries
from tests.diagnosis.failing_models.hidden import Attempted
from tests.diagnosis.failing_models.parts import WIDTH, Sound
from tests.diagnosis.failing_models.written import LENGTH, _tokens
from tests.diagnosis.test_doctor import assert_named


class Winding(Sound):
    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        for step in range(half):
            x = x + (1 if step >= 0 else -1)
        if x.shape[2] == WIDTH:
            x = x * 2
        y = self.proj(x)
        return (
            y
            if half > 2
            else -y
        )  # fmt: skip


def _line(text: str) -> int:
    lines = Path(__file__).read_text().split("\n")
    return next(i + 1 for i, line in enumerate(lines) if line.strip().startswith(text))


def _ways(model: nn.Module, one: int, other: int, watched: Sequence[Any] = ()) -> Any:
    eager = Eager(model, Inputs(model, (torch.randn(1, one, WIDTH),)))
    return [trace_execution(Unit("", model), eager, [torch.randn(1, n, WIDTH)], watched) for n in (one, other)]


def test_ways_part_where_a_branch_or_the_end_of_a_loop_is_taken_otherwise() -> None:
    one, other = _ways(Winding().eval(), 4, 8)
    lines = [statement.start for statement in changed_statements(one, other)]
    assert lines == [_line("for step in range"), _line("return (")]


def test_ways_of_equal_sizes_do_not_part() -> None:
    one, other = _ways(Winding().eval(), 5, 4)
    assert list(changed_statements(one, other)) == []


def test_numbers_of_a_watched_statement_are_kept() -> None:
    watched = statement_at(__file__, _line("half = x.shape[1]"))
    one, other = _ways(Winding().eval(), 4, 8, [watched])
    assert [one.start for one in changed_statements(one, other)][-1] == _line("half = x.shape[1]")
    assert one.numbers[__file__, _line("half = x.shape[1]")] == ["[2]"]


def test_a_way_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxpatch.diagnosis.lines.execution_trace._MOST_STEPS", 10)
    assert _ways(Winding().eval(), 4, 8) == [None, None]


def test_a_statement_has_its_head_its_names_and_whether_it_branches() -> None:
    loop = statement_at(__file__, _line("for step in range"))
    assert loop is not None and (loop.start, loop.end, loop.branches) == (loop.start, loop.start, True)
    whole = statement_at(__file__, _line("if half > 2"))
    assert whole is not None and whole.start == _line("return (") and whole.branches
    half = statement_at(__file__, _line("half = x.shape[1]"))
    assert half is not None and half.names == ("half",) and not half.branches


def test_a_range_of_a_size_from_its_end_is_a_loop_over_a_size() -> None:
    def backwards(x: Tensor) -> Tensor:
        for step in reversed(range(x.shape[1])):
            x = x + step
        return x

    assert [one.kind for one in in_function(backwards)] == [LOOP_SIZE]


def test_a_tracing_debugger_stays_as_it_was() -> None:
    def watching(*_: Any) -> Any:
        return None

    before = sys.gettrace()
    sys.settrace(watching)
    try:
        _ways(Winding().eval(), 4, 8)
        caught_exception_lines(_subject(Attempted().eval()))
        kept = sys.gettrace()
    finally:
        sys.settrace(before)
    assert kept is watching


def _subject(model: nn.Module) -> Subject:
    inputs = Inputs(model, _tokens())
    return Subject(model, inputs, [{}], [Probe("example", "example", {}, inputs.values(), ())])


def test_an_exception_that_the_model_catches_is_seen_with_its_line() -> None:
    assert caught_exception_lines(_subject(Sound().eval())) == []
    (place,) = caught_exception_lines(_subject(Attempted().eval()))
    assert constructs.code_at(place.file, place.line) == "y = self.wide(x)"


def test_the_refused_line_is_found_by_stopping_before_it() -> None:
    model = Winding().eval()
    inputs = Inputs(model, _tokens())
    probe = Probe("example", "example", {}, inputs.values(), ())
    unit = Unit("", model)
    case = case_of(unit, record(model, inputs, [probe], [unit])[unit.key], [probe], 0)
    assert case is not None
    subject = Subject(case.model, case.inputs, case.specs, case.probes)
    doubled = _line("x = x * 2")

    def attempt(part: Subject) -> Trial:
        part.model(*part.inputs.values())
        seen = part.model._stop > lines.index(doubled)  # type: ignore[operator]
        return Trial("refused", "no %12 for 3", "Error") if seen else Trial()

    lines = execution_trace._executed_lines(subject, type(model).forward.__code__)
    whole = Trial("refused", "no %7 for 9", "Error")
    (found,) = execution_trace.first_failing_line(unit, subject, whole, attempt, lambda: 1.0)
    assert found.line == doubled


def test_lines_of_torch_and_of_the_doctor_are_nobodys() -> None:
    stack = [Site(torch.nn.__file__, 1), Site(__file__, 2), Site(execution_trace.__file__, 3), Site(__file__, 4)]
    assert model_lines(stack) == [Site(__file__, 2)]


@pytest.mark.exports
def test_a_layer_of_torch_is_named_without_the_line_that_called_the_doctor() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.RMSNorm(WIDTH)).eval()
    found = doctor(model, _tokens(), dynamic_shapes=LENGTH, exporter="trace", proposals=False, registry=Registry())
    assert [(c.path, c.operator, c.source) for c in found.culprits] == [("1", "aten::rms_norm", "")]


_NEAR = [case for case in libraries.CASES if case.needs != "transformers" and case.exporter == "trace"]


@pytest.mark.slow
@pytest.mark.parametrize("case", _NEAR, ids=lambda case: f"{case.needs}-{case.name}")
def test_the_true_culprit_is_named_in_models_of_libraries(case: Any) -> None:
    if importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    assert_named(case)
