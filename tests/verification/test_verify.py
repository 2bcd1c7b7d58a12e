"""verify: any ONNX file against the model, with what froze and what was dropped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch
from onnxpatch.onnxfile import runtime_forms
from onnxpatch.onnxfile.runtime import load_graph
from tests.fingerprint import fingerprint
from tests.verified_models import BatchBranch, NativeSize, Right

pytestmark = pytest.mark.exports

IMAGE = ({0: "b", 2: "h", 3: "w"},)


def plain(model: nn.Module, args: tuple[Any, ...], file: Path, **options: Any) -> Path:
    """An export without the kit."""
    torch.onnx.export(model.eval(), args, str(file), **{"verbose": False, "external_data": False, **options})
    return file


def traced(model: nn.Module, args: tuple[Any, ...], file: Path, axes: Any = None) -> Path:
    names = [f"in{i}" for i in range(len(args))]
    return plain(model, args, file, dynamo=False, opset_version=18, input_names=names, dynamic_axes=axes)


def test_right_file_by_its_own_free_sizes(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 16, 24)
    file = traced(model, (x,), tmp_path / "m.onnx", {"in0": {0: "b", 2: "h"}})
    before = fingerprint(model)
    report = onnxpatch.verify(file, model, (x,), guards=False)
    assert report.ok and report.dimensions == {"b": 2, "h": 16} and len(report.checks) > 6
    assert fingerprint(model) == before and "right" in str(report)


@pytest.mark.parametrize("number", [torch.tensor, np.array])
def test_an_input_without_dimensions_has_none_in_the_runtime(number: Any) -> None:
    class From(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return x[int(k) :].amax(0)

    args = (torch.randn(4, 3), number(2))
    asked: dict[str, Any] = {"exporter": "trace", "branches": True, "attempts": "asked"}
    assert onnxpatch.export(From().eval(), args, dynamic_shapes=({0: "n"}, None), **asked).ok


@pytest.mark.quick  # what the proof is for
def test_dropped_guard_is_named_with_the_sizes_that_break_it(tmp_path: Path) -> None:
    model, x = BatchBranch(), torch.randn(2, 3)
    file = plain(model, (x,), tmp_path / "m.onnx", dynamo=True, dynamic_shapes=({0: "b"},))
    report = onnxpatch.verify(file, model, (x,), dynamic_shapes=({0: "b"},))
    assert not report.ok
    (guard,) = [one for one in report.guards if one.harmful]
    assert guard.expression == "b <= 4" and guard.sizes["b"] > 4


def test_guard_finds_the_size_that_no_list_of_sizes_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxpatch.verification.reference.decided_sizes", lambda *_: ())  # nor watching eager

    class Secret(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.limit = 37.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.shape[0] * 3 == self.limit - 4 else x * 2

    model, x = Secret(), torch.randn(20, 3)
    file = plain(model, (x,), tmp_path / "m.onnx", dynamo=True, dynamic_shapes=({0: "b"},))
    blind = onnxpatch.verify(file, model, (x,), dynamic_shapes=({0: "b"},), guards=False)
    seeing = onnxpatch.verify(file, model, (x,), dynamic_shapes=({0: "b"},))
    assert blind.ok and not seeing.ok
    assert seeing.first_wrong().sizes == {"b": 11} and any(g.harmful for g in seeing.guards)


def test_frozen_node_is_named_with_its_source_line(tmp_path: Path) -> None:
    model, x = NativeSize(), torch.randn(2, 3, 32, 32)
    file = plain(model, (x,), tmp_path / "m.onnx", dynamo=True, dynamic_shapes=IMAGE)
    report = onnxpatch.verify(file, model, (x,), dynamic_shapes=IMAGE)
    assert not report.ok
    frozen = next(f for f in report.frozen if f.node)
    assert frozen.op == "Add" and "verified_models.py" in frozen.source and "tokens + self.pos_embed" in frozen.source
    assert any(g.harmful and "16" in g.expression for g in report.guards)


def test_static_input_of_a_declared_dynamic_size(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 16, 24)
    file = traced(model, (x,), tmp_path / "m.onnx", {"in0": {0: "b"}})
    report = onnxpatch.verify(file, model, (x,), dynamic_shapes=IMAGE, guards=False)
    assert not report.ok and {f.dimension for f in report.frozen} >= {"h", "w"}
    assert "is 16 in the file: input 'in0', axis 2" in report.frozen[0].where


def test_constant_grid_is_a_frozen_node(tmp_path: Path) -> None:
    class Grid(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            side = int(x.shape[-1] * 1.5)
            return F.interpolate(x, size=(side, side), mode="nearest")

    model, x = Grid(), torch.randn(1, 3, 16, 16)
    file = traced(model, (x,), tmp_path / "m.onnx", {"in0": {2: "h", 3: "w"}})
    report = onnxpatch.verify(file, model, (x,), dynamic_shapes=({2: "h", 3: "w"},), guards=False)
    assert any(
        f.op == "Resize" and "keeps axes [2, 3] of its output at [1, 3, 24, 24]" in f.where for f in report.frozen
    )


class _Root(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()


def test_special_values_where_the_model_heals_them_and_on_request(tmp_path: Path) -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clamp(min=0).sqrt() if torch.jit.is_tracing() else x.nan_to_num(0).clamp(min=0).sqrt()

    model, x = Root(), torch.rand(2, 3)
    file = traced(model, (x,), tmp_path / "m.onnx")
    first = onnxpatch.verify(file, model, (x,)).first_wrong()
    assert first is not None and first.label == "one NaN"
    assert onnxpatch.verify(file, torch.nn.Sequential(nn.ReLU(), _Root()), (x,)).ok  # asks for none: not tried
    nan = torch.tensor([[0.0, -1.0, float("nan")]] * 2)
    report = onnxpatch.verify(file, model, (x,), data=[(torch.zeros(2, 3),), (nan,)])
    assert [c.status for c in report.checks if c.kind == "given"] == ["right", "wrong"]


def test_reference_runtime_serves_without_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Right(), torch.randn(2, 3, 8, 8)
    file = traced(model, (x,), tmp_path / "m.onnx", {"in0": {0: "b"}})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = onnxpatch.verify(file, model, (x,), guards=False, max_probes=4)
    assert report.ok and report.runtime == "reference" and len(report.checks) == 4
    with pytest.raises(onnxpatch.InputError, match="onnxruntime is not installed: pip install"):
        onnxpatch.verify(file, model, (x,), runtime="onnxruntime")


def test_external_data(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 8, 8)
    file = traced(model, (x,), tmp_path / "m.onnx", {"in0": {0: "b"}})
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert (tmp_path / "w.bin").is_file()
    assert onnxpatch.verify(file, model, (x,), guards=False).ok


def test_corrupt_missing_and_unfitting_files(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 8, 8)
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x08no model at all")
    with pytest.raises(onnxpatch.InputError, match="not a readable ONNX model"):
        onnxpatch.verify(bad, model, (x,))
    with pytest.raises(onnxpatch.InputError, match="no such file"):
        onnxpatch.verify(tmp_path / "none.onnx", model, (x,))
    file = traced(nn.CosineSimilarity(), (torch.randn(2, 3), torch.randn(2, 3)), tmp_path / "two.onnx")
    with pytest.raises(onnxpatch.InputError, match=r"takes 2 inputs \['in0', 'in1'\], the example gives 1 tensors"):
        onnxpatch.verify(file, model, (x,))


def test_impossible_sizes_and_unknown_names(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 8, 8)
    file = traced(model, (x,), tmp_path / "m.onnx")
    with pytest.raises(onnxpatch.InputError, match="names 'image'"):
        onnxpatch.verify(file, model, (x,), dynamic_axes={"image": {0: "b"}})
    with pytest.raises(onnxpatch.InputError, match="outside the bounds of its Dim: 4"):
        onnxpatch.verify(file, model, (x,), dynamic_shapes=({0: torch.export.Dim("b", min=4)},))


def test_tolerance_is_strict_and_progress_is_told(tmp_path: Path) -> None:
    model, x = Right(), torch.randn(2, 3, 8, 8)
    file = traced(model, (x,), tmp_path / "m.onnx")
    with torch.no_grad():
        model.conv.bias.add_(0.01)
    told: list[tuple[str, int, int]] = []
    report = onnxpatch.verify(file, model, (x,), progress=lambda *one: told.append(one))
    assert not report.ok and report.first_wrong().label == "example" and told[0][1] == 0


def test_ill_conditioned_answers_are_no_verdict(tmp_path: Path) -> None:
    class Chaotic(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x, (x * 1e9).sin() * (x.abs() > 1.5)])

    model, x = Chaotic(), torch.rand(8, 4)
    file = traced(model, (x,), tmp_path / "m.onnx")
    report = onnxpatch.verify(file, model, (x,), data=[(x * 2 + 1.6,)])
    assert report.ok and report.checks[-1].status in ("unsteady", "right")


def test_conditions_are_not_waited_for_endlessly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ponders(BatchBranch):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_exporting():
                while True:
                    x = x + 0
            return super().forward(x)

    model, x = Ponders(), torch.randn(6, 3)
    file = traced(BatchBranch(), (x,), tmp_path / "m.onnx", {"in0": {0: "b"}})
    monkeypatch.setattr(sys.modules["onnxpatch.verify"], "_CAPTURE", 0.5)
    report = onnxpatch.verify(file, model, (x,), dynamic_shapes=({0: "b"},))
    assert not report.ok and any("longer than 0.5 s" in note for note in report.notes)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((torch.randn(2, 3, 16, 24, dtype=torch.float64),), r"is float32\[b,3,16,24\].* as float64\[2,3,16,24\]"),
        ((torch.randn(2, 3, 16),), r"as float32\[2,3,16\]"),
        ((torch.randn(2, 3, 8, 24),), r"as float32\[2,3,8,24\]"),
    ],
    ids=["dtype", "rank", "fixed size"],
)
def test_an_example_that_the_file_cannot_take(args: tuple[Any, ...], says: str, tmp_path: Path) -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    file = traced(Twice(), (torch.randn(2, 3, 16, 24),), tmp_path / "m.onnx", {"in0": {0: "b"}})
    with pytest.raises(onnxpatch.InputError, match=says):
        onnxpatch.verify(file, Twice(), args)
    assert onnxpatch.verify(file, Twice(), (torch.randn(5, 3, 16, 24),)).ok


def test_a_tensor_that_feeds_nothing_is_told(tmp_path: Path) -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor, by: torch.Tensor | None = None) -> torch.Tensor:
            return x if by is None else x + by

    file = plain(Shifted(), (torch.ones(2),), tmp_path / "m.onnx", dynamo=False, input_names=["x"])
    report = onnxpatch.verify(file, Shifted(), (torch.ones(2), torch.ones(2)))
    assert not report.ok and "the file has no input for by of the example" in str(report)


def test_numpy_arrays_are_taken_as_tensors(tmp_path: Path) -> None:
    import numpy as np

    model = Right().eval()
    file = traced(model, (torch.randn(2, 3, 16, 24),), tmp_path / "m.onnx")
    image = np.random.default_rng(0).normal(size=(2, 3, 16, 24)).astype("float32")
    assert onnxpatch.verify(file, model, image).ok
    assert onnxpatch.export(model, (image,), dynamo=False, max_probes=1).ok


# ------------------------------------------------------------------ bfloat16, which numpy does not know
class Narrow(nn.Module):
    """Whole in float32, given out in bfloat16 (also an empty one)."""

    def __init__(self, by: float = 3.0) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * self.by).to(torch.bfloat16), x[:, :0].to(torch.bfloat16)


@pytest.mark.parametrize("dynamo", [True, False])
def test_bfloat16_outputs(dynamo: bool, tmp_path: Path) -> None:
    x = torch.randn(2, 4)
    report = onnxpatch.export(Narrow().eval(), (x,), tmp_path / "m.onnx", dynamo=dynamo, dynamic_shapes=({0: "n"},))
    assert report.ok and report.runtime == "onnxruntime"
    assert {output.found_dtype for check in report.checks for output in check.outputs} == {"bfloat16"}
    wrong = onnxpatch.verify(tmp_path / "m.onnx", Narrow(3.5), (x,))
    assert not wrong.ok and wrong.worst > 0.1
    told, empty = onnxpatch.Session(tmp_path / "m.onnx")(x)
    assert torch.equal(told, Narrow()(x)[0]) and empty.shape == (2, 0)
    assert onnxpatch.Session(tmp_path / "m.onnx")(x.numpy())[0].dtype == "float32"


def test_bfloat16_that_onnxruntime_has_no_kernel_for(tmp_path: Path) -> None:
    """Plain torch's file loads nowhere here, and is not called right; the kit's computes such nodes in float32."""
    model, x = nn.Linear(4, 3).to(torch.bfloat16).eval(), torch.randn(2, 4, dtype=torch.bfloat16)
    report = onnxpatch.export(model, (x,), tmp_path / "m.onnx", dynamo=False)
    assert report.ok and report.runtime == "onnxruntime"
    assert any("computed in float32, since onnxruntime's CPU has no kernel" in note for note in report.notes)
    assert torch.allclose(onnxpatch.Session(tmp_path / "m.onnx")(x), model(x), atol=0.01)
    torch.manual_seed(7)
    assert not onnxpatch.verify(tmp_path / "m.onnx", nn.Linear(4, 3).to(torch.bfloat16), (x,)).ok
    plain = traced(model, (x,), tmp_path / "plain.onnx")
    with pytest.raises(onnxpatch.InputError, match=r"(?s)cannot load the graph:\s+.*Gemm.*file needs another runtime"):
        onnxpatch.verify(plain, model, (x,))
    assert onnxpatch.verify(plain, model, (x,), runtime="reference").ok


class Mixed(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(input).float()


@pytest.mark.parametrize("model, parsed", [(nn.Linear(4, 3), False), (Mixed(4, 3), True)])
def test_a_large_file_is_parsed_only_where_it_may_have_bfloat16(
    model: nn.Module, parsed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_forms, "_LARGE", 0)
    calls: list[Path] = []

    def counted(file: Path) -> onnx.ModelProto:
        calls.append(file)
        return load_graph(file)

    monkeypatch.setattr(runtime_forms, "load_graph", counted)
    report = onnxpatch.export(model.eval(), (torch.randn(2, 4),), dynamo=False, max_probes=2)
    assert report.ok and bool(calls) == parsed == any("computed in float32" in note for note in report.notes)


@pytest.mark.parametrize("name, providers", [("reference", None), ("onnxruntime", ["CPUExecutionProvider"])])
def test_bfloat16_for_another_runtime_is_left(name: str, providers: list[str] | None, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 3).to(torch.bfloat16).eval(), torch.randn(2, 4, dtype=torch.bfloat16)
    asked: dict[str, Any] = {"runtime": name, "providers": providers, "dynamo": False}
    if providers is None:
        assert onnxpatch.export(model, (x,), tmp_path / "m.onnx", **asked).ok
        assert {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node} == {"Gemm"}
    else:
        with pytest.raises(onnxpatch.VerificationError, match="the file needs another runtime"):
            onnxpatch.export(model, (x,), tmp_path / "m.onnx", **asked)


def test_a_model_in_training_mode_is_told_of(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    file = traced(model, (torch.ones(2, 4),), tmp_path / "m.onnx")
    assert onnxpatch.verify(file, model.eval(), (torch.ones(2, 4),)).notes == []
    report = onnxpatch.verify(file, model.train(), (torch.ones(2, 4),))
    assert not report.ok and "the model is in training mode" in str(report)
