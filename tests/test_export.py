"""export: right graphs pass, wrong ones leave no file, the model comes back, and bad input is one clear error."""

from __future__ import annotations

import inspect
import io
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn
from torch.export import Dim

import onnxpatch
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.patching.forward_state import Snapshot
from tests.fingerprint import fingerprint
from tests.verified_models import BatchBranch, DataBranch, FrozenScale, NativeSize, Nested, Right, Shrinks

pytestmark = pytest.mark.exports

IMAGE = ({0: "b", 2: "h", 3: "w"},)


BOTH = pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "trace"])


def image(h: int = 24, w: int = 40) -> torch.Tensor:
    return torch.randn(2, 3, h, w)


# ------------------------------------------------------------------ right
@BOTH
def test_a_dict_at_the_end_is_an_argument_where_the_model_takes_one(dynamo: bool, tmp_path: Path) -> None:
    class Batch(nn.Module):
        def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return batch["x"] * batch["scale"]

    given, file = ({"x": torch.randn(4, 3), "scale": torch.tensor(2.0)},), tmp_path / "m.onnx"
    sizes = ({"x": {0: "n"}, "scale": None},)
    assert onnxpatch.export(Batch().eval(), given, file, dynamic_shapes=sizes, dynamo=dynamo).ok
    assert onnxpatch.Session(file)({"scale": torch.tensor(3.0), "x": torch.ones(2, 3)}).tolist() == [[3.0] * 3] * 2


@BOTH
def test_right_model_is_exported_checked_and_given_back(dynamo: bool, tmp_path: Path) -> None:
    model, file = Right().eval(), tmp_path / "m.onnx"
    before = fingerprint(model)
    report = onnxpatch.export(model, (image(),), file, dynamic_shapes=IMAGE, dynamo=dynamo)
    assert fingerprint(model) == before
    assert report.ok and report.worst < 1e-5 and report.opset == 18
    assert {c.sizes["h"] != 24 for c in report.checks} == {True, False}
    graph = Graph(file)
    assert [i.name for i in graph.inputs] == ["x"] and graph.input_shape("x") == ["b", 3, "h", "w"]
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]


@BOTH
@pytest.mark.parametrize("form", ["shapes", "axes", "axes-list", "Dim"])
def test_every_form_of_dynamic_sizes_with_both_exporters(dynamo: bool, form: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "shapes": {"dynamic_shapes": {"x": {0: "b", 2: "h"}}},
        "axes": {"dynamic_axes": {"pixels": {0: "b", 2: "h"}, "pooled": {0: "b"}}, "input_names": ["pixels"]},
        "axes-list": {"dynamic_axes": {"x": [0, 2]}},
        "Dim": {"dynamic_shapes": ({0: Dim("b", min=1, max=64), 2: Dim.DYNAMIC},)},
    }[form]
    file = tmp_path / "m.onnx"
    onnxpatch.export(Right().eval(), (image(),), file, dynamo=dynamo, output_names=["pooled"], max_probes=4, **given)
    graph = Graph(file)
    shape = graph.input_shape(graph.inputs[0].name)
    assert [isinstance(size, int) for size in shape] == [False, True, False, True] and graph.outputs == ["pooled"]


@BOTH
def test_nested_arguments_none_and_keywords(dynamo: bool, tmp_path: Path) -> None:
    file, x = tmp_path / "m.onnx", torch.randn(2, 3)
    shapes = {"x": {0: "b"}, "pair": [{0: "b"}, {0: "b"}], "named": {"k": {0: "b"}}, "mask": None}
    kwargs = {"named": {"k": x + 2}, "mask": None}
    report = onnxpatch.export(
        Nested().eval(), (x, [x, x + 1]), file, kwargs=kwargs, dynamic_shapes=shapes, dynamo=dynamo
    )
    assert report.ok and {c.sizes["b"] for c in report.checks} > {1, 2, 3}
    assert [i.name for i in Graph(file).inputs] == ["x", "pair_0", "pair_1", "named_k"]


def test_omitted_defaults_do_not_become_inputs_of_a_trace(tmp_path: Path) -> None:
    class Optional(nn.Module):
        def forward(self, x: torch.Tensor, double: bool = False, power: int = 2, bias: object = None) -> torch.Tensor:
            out = x**power if power > 1 else x
            return out * 2 if double else out if bias is None else out + bias

    model, file = Optional().eval(), tmp_path / "m.onnx"
    for kwargs, inputs in (({}, ["x"]), ({"bias": torch.ones(3)}, ["x", "bias"])):
        report = onnxpatch.export(
            model, (torch.randn(2, 3),), file, kwargs=kwargs, dynamic_axes={"x": {0: "b"}}, dynamo=False
        )
        assert report.ok and [i.name for i in Graph(file).inputs] == inputs
    assert type(model) is Optional


def test_script_with_the_same_call(tmp_path: Path) -> None:
    report = onnxpatch.export(
        Right().eval(), (image(),), tmp_path / "m.onnx", dynamic_shapes=IMAGE, dynamo=False, script=True
    )
    assert report.ok and report.exporter == "script"


def test_stateful_model_is_held_against_its_state_as_handed_in(tmp_path: Path) -> None:
    model = Shrinks().eval()
    report = onnxpatch.export(model, (torch.randn(9, 3),), tmp_path / "m.onnx", dynamo=False)
    assert report.ok and model.window == 8 and model.seen == []


def test_file_objects_and_no_file() -> None:
    stream = io.BytesIO()
    assert onnxpatch.export(Right().eval(), (image(),), stream, dynamo=False).ok
    assert onnx.load_from_string(stream.getvalue()).graph.node
    assert onnxpatch.export(Right().eval(), (image(),), dynamo=False).file == ""


def test_one_file_unless_external_data_is_asked_for(tmp_path: Path) -> None:
    onnxpatch.export(Right().eval(), (image(),), tmp_path / "m.onnx", external_data=True, max_probes=2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert Graph(tmp_path / "m.onnx").run({"x": image()})


def test_half_precision(tmp_path: Path) -> None:
    report = onnxpatch.export(Right().eval().half(), (image().half(),), tmp_path / "m.onnx", dynamo=False)
    assert report.ok and report.checks[0].outputs[0].dtype == "float16"


# ------------------------------------------------------------------ wrong
WRONG = {
    "native size, from elsewhere": (NativeSize, lambda: (image(40, 56),), IMAGE),
    "native size, from there": (NativeSize, lambda: (image(32, 32),), IMAGE),
    "frozen scale": (FrozenScale, lambda: (image(16, 16),), ({2: "h", 3: "w"},)),
    "dropped guard": (BatchBranch, lambda: (torch.randn(2, 3),), ({0: "b"},)),
    "branch on data": (DataBranch, lambda: (torch.rand(2, 3) + 0.1,), None),
}


@BOTH
@pytest.mark.parametrize("case", WRONG)
def test_wrong_graphs_raise_and_leave_no_file(case: str, dynamo: bool, tmp_path: Path) -> None:
    make, args, shapes = WRONG[case]
    model = make().eval()
    before = fingerprint(model)  # only=(): no patch acts, since the kit cures some of these
    with pytest.raises((onnxpatch.VerificationError, onnxpatch.ExportError)) as caught:
        onnxpatch.export(
            model, args(), tmp_path / "m.onnx", dynamic_shapes=shapes, dynamo=dynamo, only=(), attempts="asked"
        )
    assert list(tmp_path.iterdir()) == [] and fingerprint(model) == before
    if not dynamo or case not in ("frozen scale", "branch on data"):  # these two are refused by torch.export itself
        assert isinstance(caught.value, onnxpatch.VerificationError)


def test_older_file_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"older")
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(
            BatchBranch().eval(),
            (torch.randn(2, 3),),
            file,
            dynamic_axes={"x": {0: "b"}},
            dynamo=False,
            attempts="asked",
        )
    assert file.read_bytes() == b"older" and [one.name for one in tmp_path.iterdir()] == ["m.onnx"]


def test_error_names_output_size_and_error_and_carries_the_report(tmp_path: Path) -> None:
    with pytest.raises(
        onnxpatch.VerificationError, match=r"onnxruntime at b=5: output 'y':\s+relative error 0\.333"
    ) as e:
        onnxpatch.export(
            BatchBranch().eval(),
            (torch.randn(2, 3),),
            tmp_path / "m.onnx",
            dynamic_shapes=({0: "b"},),
            output_names=["y"],
            dynamo=False,
            attempts="asked",
        )
    report = e.value.report
    assert isinstance(report, onnxpatch.Report) and report.first_wrong().outputs[0].first_index == (0, 0)


def test_wrong_patch_is_caught_by_the_file(registry: onnxpatch.Registry, tmp_path: Path) -> None:
    @onnxpatch.patch("torch.nn.ReLU", name="wrong", why="a patch that is wrong", registry=registry)
    class Stand:
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    model = nn.Sequential(nn.ReLU()).eval()
    with pytest.raises(onnxpatch.VerificationError, match=r"(?s)differs from PyTorch.*onnxruntime at example"):
        onnxpatch.export(model, (torch.randn(2, 3),), tmp_path / "m.onnx", registry=registry, attempts="asked")
    assert type(model[0]) is nn.ReLU


def test_random_model_proves_nothing(tmp_path: Path) -> None:
    class Random(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x)

    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(Random().eval(), (torch.randn(2, 3),), tmp_path / "m.onnx", dynamo=False)


@BOTH
def test_refusal_names_the_module_and_is_chained(dynamo: bool, tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.ldl_factor(x @ x.T)[0]

    model = nn.Sequential(nn.Identity(), Odd()).eval()
    with pytest.raises(onnxpatch.ExportError, match="export refused Sequential") as caught:
        onnxpatch.export(model, (torch.randn(12, 12),), tmp_path / "m.onnx", dynamo=dynamo)
    assert caught.value.__cause__ is not None and not list(tmp_path.iterdir())


def test_refusal_in_the_forward_names_module_and_line(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), DataBranch()).eval()
    with pytest.raises(
        onnxpatch.ExportError, match=r"(?s)in module 1 \(DataBranch\) at .*verified_models\.py:\d+ in forward"
    ):
        onnxpatch.export(model, (torch.rand(2, 3),), tmp_path / "m.onnx", attempts="asked")


class Corrected(nn.Module):
    """Another layer for inputs with a large sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if float(x.sum()) > 0.5:
            y = self.second(y).relu()
        return y


def test_a_branch_that_the_file_lacks_is_named_with_its_line() -> None:
    with pytest.raises(onnxpatch.VerificationError) as caught:
        onnxpatch.export(Corrected().eval(), torch.ones(2, 3), dynamo=False, attempts="asked")
    line = inspect.getsourcelines(Corrected.forward)[1] + 2
    hint = f"forward branches on tensor values ({__file__}:{line}): branches=True exports both sides"
    assert hint in str(caught.value)


# ------------------------------------------------------------------ branches
class Optional(nn.Module):
    """None on some data, inside a tuple."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        extra = None
        if x.sum() > 0:
            extra = x.softmax(-1)
        return x * 2, extra


@BOTH
def test_missing_output_is_held_against_value_and_flag(dynamo: bool, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    report = onnxpatch.export(
        Optional().eval(), (torch.rand(2, 3),), file, dynamic_shapes=({0: "b"},), dynamo=dynamo, branches=True
    )
    assert report.ok and {c.kind for c in report.checks} >= {"branch", "size"}
    always, value, flag = Graph(file).run({"x": -torch.rand(4, 3)})
    assert always.shape == (4, 3) and value.shape == (4, 3) and not flag


@BOTH
def test_an_example_of_size_zero(dynamo: bool, tmp_path: Path) -> None:
    class Grows(torch.nn.Module):
        def forward(self, past: torch.Tensor, new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            both = torch.cat((past, new))
            return both, both.sum(0) * past.shape[0]

    dim = torch.export.Dim("past", min=0)
    file, args = tmp_path / "m.onnx", (torch.randn(0, 3), torch.randn(1, 3))
    report = onnxpatch.export(Grows().eval(), args, file, dynamo=dynamo, dynamic_shapes=({0: dim}, None), max_probes=4)
    assert report.ok, str(report)
    for size in (0, 1, 7):
        given = (torch.randn(size, 3), args[1])
        torch.testing.assert_close(onnxpatch.Session(file)(*given), Grows()(*given))


@BOTH
def test_complex_outputs_are_given_out_as_pairs_of_real_numbers(dynamo: bool, tmp_path: Path) -> None:
    class Spectrum(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"spectrum": torch.fft.fft(x), "mean": x.mean(-1)}

    model, x = Spectrum().eval(), torch.randn(2, 8)
    report = onnxpatch.export(model, (x,), tmp_path / "m.onnx", dynamo=dynamo, dynamic_shapes=({0: "b"},))
    assert report.ok
    assert report.checks[-1].outputs[0].shape[-2:] == (8, 2)
    found = onnxpatch.Session(tmp_path / "m.onnx")(x)["spectrum"]
    assert torch.allclose(torch.view_as_complex(found), torch.fft.fft(x), atol=1e-4)
    with onnxpatch.patched(model):  # in eager it is what it was
        assert torch.allclose(model(x)["spectrum"], torch.fft.fft(x), atol=1e-4)


def test_a_graph_with_sequences_inside_is_told_of_and_a_dict_at_the_end_is_an_input() -> None:
    class Chunks(nn.Module):
        def forward(self, x):
            return torch.stack([part.mean(1) for part in x.chunk(3, 1)], 1).amax(1), x.tensor_split(3, 1)[1]

    args, dynamic = (torch.randn(2, 12, 4),), ({1: "t"},)
    with pytest.raises(onnxpatch.VerificationError):
        onnxpatch.export(Chunks().eval(), args, dynamic_shapes=dynamic, dynamo=False, only=())

    class Keywords(nn.Module):
        def forward(self, *, x, extra):
            return {"y": x + extra["bias"], "gated": [x.mean(1) * g for g in extra["gates"]]}

    extra = {"bias": torch.randn(2, 6, 4), "gates": [torch.rand(2, 4)]}
    sizes = {"x": {0: "b"}, "extra": {"bias": {0: "b"}, "gates": [{0: "b"}]}}
    named = {"x": torch.randn(2, 6, 4), "extra": extra}
    assert onnxpatch.export(Keywords().eval(), kwargs=named, dynamic_shapes=sizes, dynamo=False).ok


@pytest.mark.parametrize("dynamo", [True, False])
def test_stable_sort_of_equal_numbers(dynamo: bool) -> None:
    class Sorts(nn.Module):
        def forward(self, x):
            return torch.sort(x.round(), dim=1, descending=True, stable=True)

    sizes = ({0: "b", 1: "t"},)
    assert onnxpatch.export(Sorts().eval(), (torch.zeros(2, 40),), dynamic_shapes=sizes, dynamo=dynamo).ok


def test_refusals_name_the_branch_or_the_operator_with_its_line() -> None:
    class Pairs(nn.Module):
        def forward(self, x):
            if x.shape[0] % 2:
                x = torch.cat([x, x[-1:]])
            return x[::2] + x[1::2]

    args, sizes = (torch.randn(4, 3),), ({0: "b"},)
    with pytest.raises(onnxpatch.ExportError, match=r"(?s)BranchError: .*test_export.py:\d+ in forward.*both branches"):
        onnxpatch.export(Pairs().eval(), args, dynamic_shapes=sizes, dynamo=False, branches=True, attempts="asked")

    class Records(nn.Module):
        def forward(self, x):
            return torch.linalg.ldl_factor(x @ x.T)[0]

    with pytest.raises(onnxpatch.ExportError, match=r"aten.linalg_ldl_factor\S+ at \S+test_export.py:\d+ in forward"):
        onnxpatch.export(Records().eval(), args, dynamic_shapes=sizes)


def test_one_snapshot_of_the_models_state_for_one_export(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    made = Snapshot.__init__
    monkeypatch.setattr(Snapshot, "__init__", lambda self, model: (taken.append(model), made(self, model))[1])
    model = Right().eval()
    assert onnxpatch.export(model, (image(),), dynamic_shapes=IMAGE).ok and taken == [model]
