"""bounds="narrow": a file that is right at some sizes says which, and is held to it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.onnxfile.size_bounds import SizeBound, read_bounds
from tests.verified_models import BatchBranch, DataBranch

pytestmark = pytest.mark.exports

BOTH = ({0: "b", 1: "n"},)


class Multiple(nn.Module):
    """One formula for multiples of 14, another for the rest."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[1] % 14 == 0 else x * 2


class Pinned(nn.Module):
    """One formula at one size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] == 20 else x + 1


class Corner(nn.Module):
    """Two sizes that matter together."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] * x.shape[1] > 80 else x + 1


FOUND = {
    "range": (BatchBranch, (2, 3), {"b": "b in 1..4"}, ["b_max4", "n"], [(4, 3)], [(5, 3)]),
    "multiple": (Multiple, (2, 28), {"n": "n in multiples of 14, 14 or more"}, ["b", "14*n"], [(3, 56)], [(3, 57)]),
    "one size": (Pinned, (2, 20), {"n": "n = 20"}, ["b", 20], [(5, 20)], [(2, 19)]),
}


def shrunk(model: nn.Module, shape: tuple[int, int], file: Path | None = None, **options: object) -> onnxpatch.Report:
    """Exported by tracing, plain, once: which keeps the example's side of a branch."""
    given = {"exporter": "trace", "only": (), "attempts": "asked", "bounds": "narrow", **options}
    return onnxpatch.export(model.eval(), (torch.randn(*shape),), file, dynamic_shapes=BOTH, **given)


@pytest.mark.parametrize("case", FOUND)
def test_the_widest_sizes_are_found_proven_and_written(case: str, tmp_path: Path) -> None:
    make, shape, words, names, inside, outside = FOUND[case]
    file = tmp_path / "m.onnx"
    report = shrunk(make(), shape, file)
    assert report.ok and report.bounds == words
    assert f"right for {next(iter(words.values()))} only" in str(report).splitlines()[0]
    assert report.call == "onnxpatch.export(model, ..., exporter='trace', only=(), bounds='narrow')"
    proto = onnx.load(file)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == names
    assert read_bounds({entry.key: entry.value for entry in proto.metadata_props})[0].words in words.values()
    session = onnxpatch.Session(file)
    for size in inside:
        x = torch.randn(*size)
        assert torch.allclose(session(x), make()(x), atol=1e-6)
    for size in outside:
        with pytest.raises(onnxpatch.InputError, match="this file is right for"):
            session(torch.randn(*size))
    again = onnxpatch.verify(file, make(), (torch.randn(*shape),), dynamic_shapes=BOTH)
    assert again.ok and again.bounds == words
    with pytest.raises(onnxpatch.InputError, match="in the example, and the file says that it is right for"):
        onnxpatch.verify(file, make(), (torch.randn(*outside[0]),), dynamic_shapes=BOTH)


def test_both_edges_are_compared() -> None:
    report = shrunk(BatchBranch(), (2, 3))
    assert {1, 4} <= {check.sizes["b"] for check in report.checks} <= {1, 2, 3, 4}


def test_sizes_that_are_wrong_together_are_kept_apart() -> None:
    report = shrunk(Corner(), (4, 10))
    assert report.ok and report.bounds
    for check in report.checks:
        assert check.sizes["b"] * check.sizes["n"] <= 80


def test_a_refused_export_keeps_a_size_at_the_examples() -> None:
    class Refused(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(x[:, i] * i for i in range(x.shape[1]))

    report = shrunk(Refused(), (2, 6), exporter="dynamo")
    assert report.ok and report.bounds == {"n": "n = 6"}
    assert [one.verdict for one in report.attempts] == ["refused", "refused", "right", "right"]
    assert "n kept at the example's size, bounds='narrow': right, delivered" in report.table()  # and b did not help


def test_what_data_decides_is_never_narrowed_and_nothing_is_unasked() -> None:
    with pytest.raises(onnxpatch.VerificationError):
        shrunk(DataBranch(), (2, 3))
    with pytest.raises(onnxpatch.VerificationError):
        shrunk(Pinned(), (2, 20), bounds=None)
    with pytest.raises(onnxpatch.InputError, match="use 'narrow'"):
        shrunk(Pinned(), (2, 20), bounds="wide")
    with pytest.raises(onnxpatch.InputError, match="leave out check=False"):
        shrunk(Pinned(), (2, 20), check=False)


def test_a_file_that_is_right_everywhere_has_no_bounds() -> None:
    assert shrunk(nn.ReLU(), (2, 3)).bounds == {}


@pytest.mark.parametrize(
    "text",
    ["{", "3", "[3]", '[{"name": "h"}]', '[{"name": "h", "low": 1, "high": "2", "multiple": 1, "places": []}]',
     '[{"name": "h", "low": 1, "high": 2, "multiple": 0, "places": []}]',
     '[{"name": "h", "low": 1, "high": 2, "multiple": 1, "places": [["x"]]}]',
     '[{"name": "h", "low": 1, "high": 2, "multiple": 1, "places": [["x", -1]]}]',
     '[{"name": "h", "low": -1, "high": 2, "multiple": 1, "places": []}]',
     '[{"name": "h", "low": 3, "high": 2, "multiple": 1, "places": []}]',
     f'[{{"name": "h", "low": {1 << 63}, "high": null, "multiple": 1, "places": []}}]'],
)  # fmt: skip
def test_damaged_metadata_is_one_error(text: str) -> None:
    with pytest.raises(onnxpatch.InputError, match="damaged"):
        read_bounds({"onnxpatch.bounds": text})


def test_words_and_names() -> None:
    assert SizeBound("h", 2).words == "h >= 2" and SizeBound("h", 2).new_name == "h_min2"
    assert SizeBound("h", 2, 64).new_name == "h_min2_max64"
    assert SizeBound("h", 14, 70, 14).words == "h in multiples of 14, 14..70"
    assert [SizeBound("h", 14, 70, 14).admits(int(size)) for size in np.array([7, 14, 20, 70, 84])] == [
        False, True, False, True, False,
    ]  # fmt: skip
