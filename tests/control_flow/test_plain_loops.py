"""Plain Python loops: right at lengths that no round was run for, or refused with the line and a way on."""

from __future__ import annotations

import copy
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from tests.control_flow import loop_models, nested_loops, updating_loops  # noqa: F401  # which add to the first's tables
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports

ROWS = ({0: "rows"},)
LENGTHS = (1, 2, 3, 7, 20)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("name", loop_models.RIGHT)
def test_one_loop_for_every_number_of_rows(name: str, exporter: str) -> None:
    model = loop_models.RIGHT[name]()
    eager = copy.deepcopy(model)
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file = export(model, (torch.rand(4, 4),), exporter, ROWS)
    for length in LENGTHS:
        rows = torch.rand(length, 4)
        assert wrong(run(file, (rows,)), eager(rows), 1e-4) is None, length


@pytest.mark.parametrize("name", loop_models.REFUSED)
def test_a_loop_that_its_rounds_do_not_prove_is_refused(name: str) -> None:
    # The rounds are compared before either exporter writes anything: one of them shows it.
    build, says, exporter = loop_models.REFUSED[name]
    model = build()
    with (
        pytest.raises(Exception) as caught,
        onnxpatch.patched(model, branches=True, exporter=exporter),
    ):  # torch wraps it
        export(model, (torch.rand(4, 4),), exporter, ROWS)
    refusal = caught.value if isinstance(caught.value, onnxpatch.OnnxpatchError) else caught.value.__cause__
    assert isinstance(refusal, onnxpatch.BranchError)
    text = str(refusal)
    assert says in text and any(f"{file}.py:" in text for file in ("updating_loops", "loop_models", "nested_loops"))
    assert any(way in text for way in ("@onnxpatch.scan", "table[i]", "take the view after the loop"))


def test_a_loop_over_what_a_parameter_with_gradients_made() -> None:
    model = loop_models.RIGHT["selective_scan"]()
    assert onnxpatch.export(
        model, (torch.rand(4, 4),), dynamic_shapes=ROWS, exporter="dynamo", branches=True, attempts="asked"
    ).ok


def test_a_file_has_no_loop_that_nothing_uses() -> None:
    model = loop_models.RIGHT["writes_rows"]()
    with onnxpatch.patched(model, branches=True, exporter="trace"):
        file = export(model, (torch.rand(4, 4),), "trace", ROWS)
    assert [node.op_type for node in onnx.load_from_string(file).graph.node].count("Loop") == 1


class Windows(nn.Module):
    """Overlapping windows of 4 x 4, added where they were taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for i in range(0, x.shape[0] - 3, 2):
            for j in range(0, x.shape[1] - 3, 2):
                out[i : i + 4, j : j + 4] += x[i : i + 4, j : j + 4].softmax(0)
        return out


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_windows_in_two_directions(exporter: str) -> None:
    assert onnxpatch.export(
        Windows().eval(), (torch.rand(8, 11),), dynamic_shapes=({0: "h", 1: "w"},), exporter=exporter, branches=True,
        attempts="asked",
    ).ok  # fmt: skip


class OfEachLength(nn.Module):
    """The mean of as many rows as each length says, of which there may be none: NaN."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[i, : lengths[i]].mean(0) for i in range(x.shape[0])])


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_means_of_lengths_from_data(exporter: str) -> None:
    args, shapes = (torch.rand(3, 5, 4), torch.tensor([3, 5, 2])), ({0: "b", 1: "n"}, {0: "b"})
    assert onnxpatch.export(
        OfEachLength().eval(), args, dynamic_shapes=shapes, exporter=exporter, branches=True, attempts="asked"
    ).ok


class Pieces(nn.Module):
    """Four rows at a time."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[at : at + 4].softmax(0) for at in range(0, x.shape[0], 4)])


def test_the_last_piece_may_be_shorter_under_trace() -> None:
    assert onnxpatch.export(
        Pieces().eval(), (torch.rand(8, 2),), dynamic_shapes=ROWS, exporter="trace", branches=True, attempts="asked"
    ).ok


class Overlapping(nn.Module):
    """Frames added where they overlap. The first range starts at a tensor that is 0, as an `if` takes no start."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(2 * frames.shape[0] + 2)
        for i in range(frames.shape[0]):
            out[i * 2 : i * 2 + 4] += frames[i]
        return out


def test_ranges_that_overlap_are_added_under_trace() -> None:
    frames = (torch.rand(4, 4),)
    assert onnxpatch.export(
        Overlapping().eval(), frames, dynamic_shapes=ROWS, exporter="trace", branches=True, attempts="asked"
    ).ok


class Unbound(nn.Module):
    """Numbered columns of a list that `unbind` makes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[1])
        for number, row in enumerate(x.unbind(0)):
            total = 0.5 * total + row * number
        return total


def test_numbered_rows_of_unbind() -> None:
    rows = (torch.rand(4, 4),)
    assert onnxpatch.export(
        Unbound().eval(), rows, dynamic_shapes=ROWS, exporter="trace", branches=True, attempts="asked"
    ).ok


class Running(nn.Module):
    """Sums of rows, from the second one on."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total, out = x[0], x * 1.0
        all_of_them = [total]
        for i in range(1, x.shape[0]):
            total = torch.tanh(total + x[i])
            out[i] = total
            all_of_them.append(total)
        return total, out, torch.stack(all_of_them)


class FirstApart(nn.Module):
    """Sums of rows, of which the first finds no state."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state, outs = None, []
        for row in x:
            state = row.exp() if state is None else torch.tanh(state * 0.5 + row)
            outs.append(state + (outs[-1] if outs else 0))
        return torch.stack(outs), state


class FirstInside(nn.Module):
    """A loop inside another one, whose first round does more."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.zeros(4)
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                if j == 0:
                    total = total * 0.5
                total = total + torch.tanh(x[i] * x[j])
        return total, x.sum()


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("cls", [Running, FirstApart, FirstInside])
def test_a_loop_may_have_no_rounds(cls, exporter: str, tmp_path: Path) -> None:
    report = onnxpatch.export(
        cls().eval(), (torch.rand(4, 4),), tmp_path / "m.onnx", dynamic_shapes=ROWS, exporter=exporter,
        branches=True, attempts="asked",
    )  # fmt: skip
    assert report.ok
    for length in LENGTHS:
        rows = torch.rand(length, 4)
        assert wrong(onnxpatch.Session(tmp_path / "m.onnx")(rows), cls()(rows), 1e-4) is None, length


def test_hashes_of_tensors_are_torchs_own_again() -> None:
    before = torch.Tensor.__hash__
    model = loop_models.RIGHT["backwards"]()
    with onnxpatch.patched(model, branches=True, exporter="trace"):
        export(model, (torch.rand(4, 4),), "trace", ROWS)
    assert torch.Tensor.__hash__ is before
