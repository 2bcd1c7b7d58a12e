"""`assert_exports` and the pytest plugin, and other people's exporters called inside `patched(...)`."""

from __future__ import annotations

import textwrap

import pytest
import torch

import onnxpatch
from onnxpatch.testing import assert_exports
from tests import exporting

pytestmark = pytest.mark.exports

pytest_plugins = ["pytester"]

BATCH = ({0: "batch"},)


class Frozen(torch.nn.Module):
    """Right at three columns, silently wrong at others: the exporters keep the branch of the example."""

    def forward(self, x):
        return x * 2 if x.shape[1] == 3 else x * 5


def test_a_right_model_passes_in_every_exporter():
    reports = assert_exports(
        torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),), dynamic_shapes=BATCH, exporters=("dynamo", "trace", "script")
    )
    assert set(reports) == {"dynamo", "trace", "script"}
    assert all(report.ok and report.dimensions == {"batch": 2} for report in reports.values())


def test_the_failure_text_is_the_report_of_each_exporter_that_failed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError) as failed:
        assert_exports(
            Frozen().eval(), (torch.ones(2, 3),), dynamic_shapes=({1: "columns"},), exporter="trace", branches=False,
            f=tmp_path / "m.onnx",
        )  # fmt: skip
    text = str(failed.value)
    assert text.startswith("trace: ")
    assert "columns=" in text and text.count("WRONG") == 1
    assert "relative error" in text and "next: " in text


def test_exporters_are_checked():
    with pytest.raises(ValueError, match="name one or several of dynamo, trace, script"):
        assert_exports(torch.nn.Linear(3, 2), (torch.ones(2, 3),), exporters=("tensorrt",))


PLUGIN_TEST = """
    import torch

    class Frozen(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[1] == 3 else x * 5

    def test_right(assert_exports):
        assert_exports(torch.nn.Linear(3, 2).eval(), (torch.ones(2, 3),), dynamic_shapes=({0: "batch"},),
                       exporters="trace")

    def test_wrong(assert_exports):
        assert_exports(Frozen().eval(), (torch.ones(2, 3),), dynamic_shapes=({1: "columns"},), exporters="trace")
"""


def test_the_plugin_gives_the_fixture_and_keeps_reports(pytester):
    pytester.makepyfile(textwrap.dedent(PLUGIN_TEST))
    done = pytester.runpytest_inprocess("-p", "pytest_onnxpatch", "--onnxpatch-reports", "found")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*AssertionError: trace: *"])
    kept = sorted(file.name for file in (pytester.path / "found").iterdir())
    assert len(kept) == 2, kept
    assert "failed" in (pytester.path / "found" / kept[1]).read_text()
    assert "right" in (pytester.path / "found" / kept[0]).read_text()


def test_the_plugin_costs_no_import_of_torch():
    import subprocess
    import sys

    code = "import sys, pytest_onnxpatch; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


class PatchEmbedding(torch.nn.Module):
    """A layer that plain `torch.jit.script` + export refuses, and a table that follows the image size."""

    def __init__(self):
        super().__init__()
        from einops.layers.torch import Rearrange

        self.patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
        self.linear = torch.nn.Linear(48, 8)

    def forward(self, x):
        return self.linear(self.patches(x))


def deep_inside(model, file, example):
    """As other exporters do: wrap, put into eval mode, and call torch.onnx.export at the end of it all."""

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, pixels):
            return {"embedding": self.inner(pixels)}

    axes = {"pixels": {0: "batch", 2: "height", 3: "width"}}
    torch.onnx.export(
        Wrapped().eval(), (example,), file, dynamo=False, dynamic_axes=axes, input_names=["pixels"], opset_version=18
    )


def test_an_exporter_that_wraps_the_model_works_inside_patched(tmp_path):
    model = PatchEmbedding().eval()
    nodes = {}
    for name in ("plain", "patched"):
        file = tmp_path / f"{name}.onnx"
        if name == "plain":
            deep_inside(model, str(file), torch.randn(1, 3, 16, 16))
        else:
            with onnxpatch.patched(model, exporter="trace"):
                deep_inside(model, str(file), torch.randn(1, 3, 16, 16))
        nodes[name] = exporting.nodes(file.read_bytes())
    assert nodes["patched"] < nodes["plain"]
    report = onnxpatch.verify(
        tmp_path / "patched.onnx", model, (torch.randn(1, 3, 16, 16),), input_names=["pixels"], guards=False
    )
    assert report.ok, report
    assert len(report.dimensions) == 3


@pytest.mark.parametrize("use_dynamo", [False, True], ids=["trace", "dynamo"])
def test_timm_s_own_exporter_works_inside_patched(tmp_path, use_dynamo):
    """timm's `onnx_export` calls torch.onnx.export itself, with names and options of its own."""
    from timm.utils.onnx import onnx_export

    model = PatchEmbedding().eval()
    file, example = tmp_path / "timm.onnx", torch.randn(1, 3, 16, 16)
    with onnxpatch.patched(model) as patched:
        onnx_export(
            model, str(file), example, opset=18, check=True, check_forward=True, use_dynamo=use_dynamo,
            dynamic_size=not use_dynamo, input_names=["input0"], external_data=False,
        )  # fmt: skip
    assert [swap.path for swap in patched.plan.swaps] == ["patches"]
    report = onnxpatch.verify(file, model, (example,), guards=False)
    assert report.ok, report
