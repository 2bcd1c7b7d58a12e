"""The budget of a verification counts work and no seconds; what it leaves out, and what it never does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch.dispatch_modes import CountedRun
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification import probe as probe_module
from onnxpatch.verification import runner
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Budget, Probe
from onnxpatch.verification.reference import Reference, find_probes
from tests.child import run_script
from tests.verified_models import BatchBranch, DataBranch, NativeSize, Right

pytestmark = pytest.mark.exports

IMAGE = ({0: "b", 2: "h", 3: "w"},)


class Call(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


class Slow(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return super().forward(x)


def reference(model: nn.Module, args: tuple[Any, ...], dynamic: Any, **budget: Any) -> Reference:
    inputs = Inputs(model, args)
    return Reference(
        model.eval(), inputs, dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic)), Budget.starting_now(**budget)
    )


def heavy(model: nn.Module, args: tuple[Any, ...], dynamic: Any) -> tuple[list[Probe], Oracle]:
    """The probes of a model whose example alone takes more than the budget."""
    inputs = Inputs(model, args)
    eager = Eager(model.eval(), inputs)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic))
    oracle = Oracle(eager, inputs, dims, Budget(), operations=1e12)
    watched = eager.decisions(inputs.values(), sizes=True)
    return find_probes(oracle, oracle.start(eager.ask(inputs.values())), watched), oracle


# ------------------------------------------------------------------ work is counted
def test_products_are_counted_exactly_and_everything_else_by_calls_and_elements() -> None:
    with torch.no_grad(), CountedRun() as count:
        nn.Linear(8, 5, bias=False)(torch.zeros(3, 8))
        product = count.operations
        torch.zeros(10).relu()
    calls, product_only = divmod(product, 200_000)
    assert calls >= 2 and product_only >= 2 * 3 * 8 * 5
    assert count.operations - product == 2 * 200_000 + 2 * 16 * 10  # zeros, relu


def test_a_slow_machine_comes_to_the_same_probes() -> None:
    args = (torch.randn(2, 3, 16, 24),)
    quick, slow = (reference(model, args, IMAGE, probes=12) for model in (Right(), Slow()))
    assert slow.seconds > 0.6
    assert [probe.label for probe in slow.probes] == [probe.label for probe in quick.probes]
    assert len(slow.probes) == 12 and slow.eager.elements == quick.eager.elements


def test_a_model_with_more_arithmetic_is_asked_less() -> None:
    class Repeats(nn.Module):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.times, self.weight = times, nn.Parameter(torch.eye(512))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.times):
                x = x @ self.weight
            return x

    light, more = (reference(Repeats(n), (torch.randn(64, 512),), ({0: "n"},), probes=16) for n in (1, 300))
    assert len(more.probes) < len(light.probes) and not light.oracle.left_out and more.oracle.left_out
    assert more.oracle.spent < 2.2 * more.budget.operations


def test_no_more_is_asked_than_compared() -> None:
    few = reference(Right(), (torch.randn(2, 3, 16, 24),), IMAGE, probes=4)
    assert len(few.probes) == 4 and len(few.oracle.accepted()) < 12


# ------------------------------------------------------------------ what every proof has
def test_sizes_that_a_model_mentions_do_not_crowd_out_small_and_large_ones() -> None:
    class Talks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image_size, self.max_length, self.window_size, self.resolution = 32, 21, [3, 6, 9], [25, 28, 30, 31]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if min(x.shape) < 1000 else x[:, :19, :22]  # 11, 12, 13, 14, 15, 17, 18

    probes = reference(Talks(), (torch.randn(4, 20, 24),), ({0: "b", 1: "h", 2: "w"},), probes=16).probes
    assert len(probes) <= 16 + 6
    for dim, size in (("b", 4), ("h", 20), ("w", 24)):
        tried = {probe.sizes[dim] for probe in probes}
        assert {1, 2} <= tried and max(tried) >= 3 * size and any(2 < n < size for n in tried)


def test_every_dimension_moves_though_the_example_fills_the_budget() -> None:
    probes, oracle = heavy(Right(), (torch.randn(4, 3, 16, 24),), IMAGE)
    assert probes[0].kind == "example" and all(p.kind == "size" for p in probes[1:])
    for dim, size in (("b", 4), ("h", 16), ("w", 24)):
        tried = {probe.sizes[dim] for probe in probes}
        assert {1, 2} <= tried and any(2 < n < size or size == 4 for n in tried) and max(tried) == size
    assert oracle.left_out and oracle.eager.elements < 6 * 4 * 3 * 16 * 24


def test_odd_sizes_are_among_the_few_though_the_example_fills_the_budget() -> None:
    probes, _ = heavy(Right(), (torch.randn(4, 3, 16, 24),), IMAGE)
    assert any(probe.sizes["h"] % 2 and probe.sizes["h"] > 1 for probe in probes)
    assert any(probe.sizes["w"] % 2 and probe.sizes["w"] > 1 for probe in probes)


def test_sizes_that_go_together_move_though_the_example_fills_the_budget() -> None:
    probes, _ = heavy(Call(lambda x, y: x + y), (torch.randn(8), torch.randn(8)), ({0: "n"}, {0: "m"}))
    assert any(p.sizes["n"] == p.sizes["m"] != 8 for p in probes)


def test_a_size_of_one_moves_up_though_the_example_fills_the_budget() -> None:
    probes, _ = heavy(Call(torch.relu), (torch.randn(1, 3),), ({0: "b"},))
    assert any(p.sizes["b"] > 1 for p in probes)


def test_branches_and_whole_numbers_are_tried_though_the_example_fills_the_budget() -> None:
    probes, _ = heavy(DataBranch(), (torch.rand(2, 3) + 0.1,), ({0: "b"},))
    assert any(p.kind == "branch" for p in probes)
    probes, _ = heavy(Call(lambda x: x * 2), (torch.tensor([3, 4]),), ({0: "b"},))
    assert any(p.label == "whole numbers + 1" for p in probes)


def test_a_dropped_guard_is_asked_for_though_the_budget_is_used_up() -> None:
    _, oracle = heavy(Call(torch.relu), (torch.randn(4, 3),), ({0: "b"},))
    assert oracle.at({"b": 5}) is None and (5,) in oracle.left_out
    probe = oracle.at({"b": 5}, kind="guard")
    assert probe is not None and probe.sizes == {"b": 5} and (5,) not in oracle.left_out


def test_the_report_says_what_the_budget_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedRun, "operations", property(lambda _: 1e12, lambda _, value: None), raising=False)
    report = onnxpatch.export(Right().eval(), (torch.randn(2, 3, 16, 24),), dynamic_shapes=IMAGE, exporter="trace")
    assert report.ok and {c.sizes[d] for d in "bhw" for c in report.checks} > {1, 7, 11}
    assert any("sizes were skipped: the verification budget was reached" in note for note in report.notes)
    for model, args, sizes in (
        (DataBranch(), (torch.rand(2, 3) + 0.1,), None),
        (NativeSize(), (torch.randn(2, 3, 32, 32),), IMAGE),
        (BatchBranch(), (torch.randn(6, 3),), ({0: "b"},)),
    ):
        with pytest.raises(onnxpatch.VerificationError):
            onnxpatch.export(model.eval(), args, dynamic_shapes=sizes, exporter="trace", only=(), attempts="asked")


# ------------------------------------------------------------------ max_seconds
class Clock:
    """The clock of budgets, which only the tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(probe_module, "time", made)
    return made


def test_max_seconds_ends_the_search_at_half_and_the_report_says_so(clock: Clock) -> None:
    class Late(Right):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clock.now += 0 if torch.jit.is_tracing() else 60
            return super().forward(x)

    model, args = Late().eval(), (torch.randn(2, 3, 16, 24),)
    report = onnxpatch.export(model, args, dynamic_shapes=IMAGE, exporter="trace", max_seconds=840)
    assert report.ok and clock.now <= 100 + 60 * 8 and 2 <= len(report.checks) <= 7
    assert any("max_seconds=840 was reached" in note and "not compared" in note for note in report.notes)
    calm = onnxpatch.export(Right().eval(), args, dynamic_shapes=IMAGE, exporter="trace", max_seconds=840)
    assert len(calm.checks) > 8 and not any("max_seconds" in note for note in calm.notes)


def test_max_seconds_ends_the_runs_of_the_graph(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    model, file, args = Right().eval(), tmp_path / "m.onnx", (torch.randn(2, 3, 16, 24),)
    onnxpatch.export(model, args, file, dynamic_shapes=IMAGE, exporter="trace", max_probes=1)
    check = runner.check_at

    def slow(*asked: Any) -> Any:
        clock.now += 400
        return check(*asked)

    monkeypatch.setattr(runner, "check_at", slow)
    report = onnxpatch.verify(file, model, args, max_seconds=720, guards=False)
    assert report.ok and len(report.checks) == 2 and report.checks[0].kind == "example"
    assert any("max_seconds=720 was reached" in note for note in report.notes)


PONDERS = """
import pathlib, sys, time, torch, onnxpatch

class Ponders(torch.nn.Module):
    def forward(self, x):
        while torch.jit.is_tracing():
            time.sleep(0.01)
        return x

model, folder = Ponders().eval(), pathlib.Path(sys.argv[1])
try:
    onnxpatch.export(model, (torch.ones(2),), folder / "m.onnx", exporter="trace", max_seconds=3)
except onnxpatch.ExportError as error:
    print(type(model) is Ponders, list(folder.iterdir()), error)
"""


def test_an_export_that_takes_longer_than_max_seconds_is_refused(tmp_path: Any) -> None:
    """In a process of its own: torch's C++ code may not survive an error in the middle of a trace."""
    done = run_script(PONDERS, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True []") and "did not end within max_seconds=3" in done.stdout


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "3", True])
def test_max_seconds_is_a_positive_number(wrong: Any) -> None:
    with pytest.raises(onnxpatch.InputError, match="max_seconds="):
        onnxpatch.export(Right().eval(), (torch.randn(2, 3, 8, 8),), max_seconds=wrong)
