"""A patch drafted from a diagnosis: its proof fails as it is, holds once it is filled in, and cures the model."""

from __future__ import annotations

import importlib
import sys
import textwrap

import pytest
import torch
from typer.testing import CliRunner

import onnxpatch
from onnxpatch.cli.app import app
from onnxpatch.errors import InputError
from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal

MODEL = """
    import torch

    @torch.library.custom_op("onnxpatch_tests::window", mutates_args=())
    def window(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(1 / (1 + x.numpy() ** 2))

    class Window(torch.nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
            return window(x * scale)

    class Learned(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(size))
        def forward(self, x):
            return window(x * self.weight)

    class Net(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.linear, self.window = torch.nn.Linear(4, 4), layer
        def forward(self, x):
            return self.window(self.linear(x))

    def plain():
        return Net(Window())

    def learned():
        return Net(Learned(4))
"""
WINDOW = """\
        x = x * {scale}
        return 1 / (1 + x * x)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "window_models.py").write_text(textwrap.dedent(MODEL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("window_models", "draft", "filled"):
        sys.modules.pop(name, None)
    for name in ("window", "learned"):
        if name in onnxpatch.REGISTRY:
            onnxpatch.REGISTRY.remove(name)


def run(*args: str):
    return CliRunner().invoke(app, list(args), prog_name="onnxpatch")


@pytest.mark.exports
@pytest.mark.parametrize(("factory", "scale"), [("plain", "scale"), ("learned", "self.weight")])
def test_a_draft_is_filled_in_proven_and_used(place, factory, scale):
    model = getattr(importlib.import_module("window_models"), factory)().eval()
    call = ((torch.randn(3, 4),), {"dynamic_shapes": ({0: "B"},), "dynamo": False})
    found = onnxpatch.doctor(model, call[0], **call[1])
    draft = onnxpatch.new_patch(found, place / "draft.py").read_text(encoding="utf-8")
    assert "at fault" not in draft and "window(x * " in draft
    assert run("prove", "draft.py").exit_code == 1
    onnxpatch.REGISTRY.remove(factory.replace("plain", "window"))
    start = draft.index("        # as it is")
    filled = draft[:start] + WINDOW.format(scale=scale)
    assert len(filled.splitlines()) < 34
    (place / "filled.py").write_text(filled)
    (place / "draft.pt").rename(place / "filled.pt")
    done = run("prove", "filled.py")
    assert done.exit_code == 0 and "proven" in done.output, done.output
    assert onnxpatch.export(model, call[0], **call[1]).ok  # importing the file declared the patch


def test_what_is_cured_needs_no_patch(place):
    cured = Culprit("a", "A", "refused", "trace", proposals=(Proposal("patch", "attention", "", tried=True),))
    with pytest.raises(InputError, match=r"the registered patches cure it \(attention\)"):
        onnxpatch.new_patch(Diagnosis("M", "trace", 18, "refused", culprits=[cured], recorded=[None]), "p.py")
    with pytest.raises(InputError, match="names no part of the model"):
        onnxpatch.new_patch(Diagnosis("M", "trace", 18), "p.py")


def test_a_file_without_a_patch(place):
    (place / "draft.py").write_text("")
    done = run("prove", "draft.py")
    assert done.exit_code == 2 and "declares no patch" in done.stderr
