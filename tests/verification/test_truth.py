"""What only certain data and certain sizes show, and where a graph is right."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from benchmarks.devious import everything
from benchmarks.devious.kinds import Devious
from onnxpatch.onnxfile.graph import random_nodes
from onnxpatch.results.report import Report
from onnxpatch.verification.size_search import distinguishing_sizes

pytestmark = pytest.mark.exports

MODELS: dict[str, Devious] = dict(everything())


def judged(name: str) -> Report:
    """The verdict on the trace of a model, without patches."""
    one = MODELS[name]
    asked: dict[str, Any] = {
        "dynamic_shapes": one.dynamic,
        "exporter": "trace",
        "only": (),
        "attempts": "asked",
        "bounds": "never",
    }
    try:
        return onnxpatch.export(one.build().eval(), one.inputs()[0], **asked)
    except onnxpatch.VerificationError as error:
        assert isinstance(error.report, Report)
        return error.report


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("constants: one_seven", "7"),
        ("constants: three_zeros", "3 elements 0"),
        ("constants: equal_inputs", ""),
        ("constants: EndOfText", "50256"),
        ("constants: first_id", "42"),
        ("constants: sums_to_ten", ""),
        ("steps: steps_of_seven_tenths", ""),
        ("steps: rest_of_three_tenths", "multiples of 0.3"),
        ("float_sizes: int_of_29_percent", "n="),
        ("empties: mean_of_the_tail", "n="),
        ("lists_and_chance: noise_on_large_numbers", "11"),
        ("lists_and_chance: certain_coin", ""),
        ("lengths: mask_from_the_longest", "n="),
        ("constants: a_single_kind", ""),
        ("relations: symmetric", ""),
        ("relations: ends_with_nine", "the last element"),
        ("counts: mostly_positive", ""),
        ("counts: root_of_the_total", "times 100"),
        ("neighbours: asked_of_numpy", ""),
        ("neighbours: all_finite", "one infinity"),
        ("far_sizes: half_beyond_32", "n=65"),
        ("far_sizes: beyond_512", "n=513"),
        ("far_sizes: blocks_of_64", "n=65"),
        ("neighbours: long_by_a_helper", "n=97"),
        ("resized: to_fifty", "h=45"),
        ("resized: to_half_of_the_example", "h=20"),
        ("resized: mask_at_the_size_of_the_other", "h=35"),
        ("resized: seven_thirds_of_it", "h=27"),
        ("resized: steps_of_a_tenth", "n=11"),
        ("looked_up: StopIds", "last of each row"),
        ("looked_up: written_number", "42"),
        ("looked_up: Known", "n=12"),
        ("looked_up: written_in_place", "n=25"),
        ("looked_up: rows_of_the_grid", "exchanged"),
        ("looked_up: Heads", "n=12"),
        ("looked_up: written_sizes", "h=16, w=12"),
        ("sizes_in_python: root_of_the_area", "h=25, w=25"),
        ("named_constants: global_number", "777"),
        ("named_constants: OfTheClass", "555"),
        ("named_constants: OfSettings", "611"),
        ("named_constants: default_of_a_helper_of_a_helper", "919"),
        ("named_constants: Closed", "747"),
        ("named_constants: ByARule", "646"),
        ("named_constants: ListOfIds", "1301, 17 at the start"),
        ("named_constants: LongByAttribute", "n=206"),
        ("in_pieces: pieces_of_a_range", "n=257"),
        ("in_pieces: Pieces", "n=151"),
        ("in_pieces: by_searchsorted", "n="),
        ("asked_otherwise: equal_to_infinity", "infinity"),
        ("asked_otherwise: unlike_itself", "NaN"),
        ("certain_noise: leaky_at_random", ""),
        ("patterns: three_times_is_21", "moved by -1"),
        ("patterns: four_between", ""),
        ("patterns: zeros_at_every_other", "every other element 0"),
        ("python_numbers: mean_near_a_number", "2.5"),
        ("python_numbers: tens_of_the_sum", ""),
        ("python_numbers: asked_of_math", "NaN"),
        ("python_numbers: as_text", "4.5"),
    ],
)
def test_found_wrong(name: str, label: str) -> None:
    report = judged(name)
    first = report.first_wrong()
    assert report.wrong and first is not None and label in first.label, str(report)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("constants: three_and_four", "(x == 4).any()"),
        ("relations: rises", "(ids.diff() > 0).all()"),
        ("relations: rows_sum_to_one", "torch.allclose"),
        ("relations: three_then_four", "ids[:, 1:] == 4"),
        ("neighbours: opposite_inputs", "(x + y == 0).all()"),
        ("neighbours: log_of_the_size", "math.log2"),
        ("neighbours: sixteen_to_nine", "math.isclose"),
        ("own_tensors: Gated", "self.inner['gate'](ids).any()"),
        ("own_tensors: StopSequence", "self.end"),
        ("own_tensors: Centroids", "(apart == 0).any()"),
        ("own_tensors: Window", "self.low < share"),
        ("named_constants: LongBySettings", "self.options.most.longest"),
        ("in_pieces: counted_ones", "> 90"),
        ("between_inputs: sums_to_ten_everywhere", "torch.allclose"),
        ("between_inputs: told_the_number_of_rows", "int(n) == x.shape[0]"),
        ("python_numbers: close_in_python", "math.isclose"),
    ],
)
def test_a_side_that_no_probe_took_is_named(name: str, side: str) -> None:
    report = judged(name)
    assert report.wrong or any(side in one.side for one in report.untried), str(report)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ranges: other_for_one", "wrong at 1: declare Dim('n', min=2)"),
        ("ranges: other_from_71", "right for n in 1..70, wrong at 71: declare Dim('n', max=70)"),
        ("ranges: other_for_odd", "declare 2*Dim('n')"),
        ("ranges: padded_to_even", "declare 2*Dim('h')"),
    ],
)
def test_right_in_a_range_is_told(name: str, text: str) -> None:
    report = judged(name)
    assert report.wrong and any(text in one.text for one in report.right_within) and text in str(report)


def test_no_range_is_told_where_data_or_no_range_explains_it() -> None:
    assert not judged("constants: one_seven").right_within
    assert not judged("ranges: square_is_other").right_within


def test_what_a_garbage_collection_calls_is_not_the_models_code() -> None:
    seconds = []

    def measure(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seconds.append(0.0)

    gc.callbacks.append(measure)
    before = gc.get_threshold()
    gc.set_threshold(20)
    try:
        report = judged("relations: rises")
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(measure)
    assert seconds and any("(ids.diff() > 0).all()" in one.side for one in report.untried) and gc.isenabled()


def test_sizes_that_float32_rounds_otherwise() -> None:
    assert 100 in distinguishing_sizes(0.29) and 10 in distinguishing_sizes(0.3)
    assert not list(distinguishing_sizes(float("nan"))) and not list(distinguishing_sizes(0.0))


def test_what_is_sorted_in_the_example_is_sorted_at_other_sizes() -> None:
    class Search(nn.Module):
        def forward(self, bins: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.searchsorted(bins, x)

    args = torch.randn(9).sort().values, torch.randn(5)
    report = onnxpatch.export(Search().eval(), args, dynamic_shapes=({0: "n"}, {0: "k"}), exporter="trace")
    assert report.ok and len(report.checks) > 5


@pytest.mark.parametrize(("inputs", "drawn"), [(["x", "ratio", "train"], True), (["x"], False), (["x", "", ""], False)])
def test_a_dropout_that_trains_draws(inputs: list[str], drawn: bool) -> None:
    node = onnx.helper.make_node("Dropout", inputs, ["y"])
    assert bool(random_nodes(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [])))) is drawn


class Noisy(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x) * self.scale


@pytest.mark.exports
def test_a_file_that_draws_says_so() -> None:
    args = (torch.ones(2, 8),)
    right = onnxpatch.export(Noisy(1e-6).eval(), args, exporter="trace")
    assert right.ok and right.draws and ", draws random numbers," in str(right).splitlines()[0]
    with pytest.raises(onnxpatch.VerificationError) as wrong:
        onnxpatch.export(Noisy(1.0).eval(), args, exporter="trace")
    assert "file and model both draw random numbers" in str(wrong.value)
    assert "next: make the random numbers an input of forward" in str(wrong.value)


class Tiles(nn.Module):
    """Tiles of a picture, as many as the example has: the first of the last row is used after the loop."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = []
        for i in range(0, x.shape[0], 2):
            row = [x[i : i + 2, j : j + 2].softmax(0) for j in range(0, x.shape[1], 2)]
            rows.append(torch.cat(row, 1))
        made = torch.cat(rows) + row[0].mean()
        return made + torch.rand_like(made) * self.scale


@pytest.mark.exports
def test_what_is_drawn_is_no_cause_where_the_file_is_right_at_some_sizes() -> None:
    args, shapes = (torch.ones(4, 6),), ({0: "h", 1: "w"},)
    with pytest.raises(onnxpatch.VerificationError) as wrong:
        onnxpatch.export(Tiles(1e-6).eval(), args, exporter="trace", dynamic_shapes=shapes)
    said = str(wrong.value)
    assert "random" not in said and "right for h in 3..4" in said
    # The place is said once, behind the words that tell what was met.
    assert "BranchError: a loop whose number of rounds depends on the input: a result of a single round is used" in said


def test_an_output_that_no_input_has_a_part_in_is_named() -> None:
    class ThroughNumpy(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, torch.from_numpy(np.linalg.eigvalsh(x.numpy()))

    with pytest.raises(onnxpatch.VerificationError, match=r"(?s)'output_1' does not depend on the .* no ONNX form"):
        onnxpatch.export(ThroughNumpy(), (torch.randn(3, 3),), exporter="trace")


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_an_operator_with_a_complex_result_that_no_pair_stands_for_is_named(exporter: str) -> None:
    class Eigenvalues(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eig(x).eigenvalues.real

    with pytest.raises(onnxpatch.ExportError, match="aten::linalg_eig has no ONNX form"):
        onnxpatch.export(Eigenvalues(), (torch.randn(3, 3),), exporter=exporter)


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_tensor_that_is_resized_beside_the_graph_is_named(exporter: str) -> None:
    class Resized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clone().resize_(x.shape[0], 2)

    with pytest.raises(onnxpatch.ExportError, match=r"Tensor\.resize_, .* make a new one"):
        onnxpatch.export(Resized(), (torch.randn(4, 3),), exporter=exporter, dynamic_shapes=({0: "n"},))


def test_an_operator_that_the_other_exporter_translates_is_told_with_it() -> None:
    class Reshaped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten._unsafe_view(x, [6])

    with pytest.raises(onnxpatch.ExportError, match=r"(?s)exporter='dynamo'\): .* translates aten::_unsafe_view"):
        onnxpatch.export(Reshaped(), (torch.randn(2, 3),), exporter="trace")
