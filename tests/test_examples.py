"""Every example runs as a user runs it, and says what it promises."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.child import run_script

pytestmark = pytest.mark.exports

ROOT = Path(__file__).parents[1]
PROMISES = {
    "scripted_einops_vit.py": ["plain:    refused: symbolic for __getitem__", "with kit: (1, 3, 64, 40)"],
    "vit_any_size.py": [
        "right at 16 of 16 (",
        "(3, 3, 24, 80): largest difference",
    ],
    "optin_decorators.py": ["exported graph: 0.00 to 1.00"],
    "position_table.py": ["plain.onnx: WRONG at", "right.onnx: right at"],
    "depth_anything_v2.py": ["exported once at 140 x 182", "518 x 518  relative error"],
    "three_attempts.py": [
        "attempt 1: refused",
        "the stand-in of 'gate-limit'",
        "attempt 2, without 'gate-limit': refused",
        "attempt 3, without 'gate-limit', branches=True: right, delivered",
        "onnxpatch.export(model, ..., exclude='gate-limit', branches=True): 1 attempt",
    ],
    "own_patch.py": ["the exported graph: right", "eigenvalues-2x2"],
    "numpy_loop.py": ["140 of 140 tokens as model.generate, 140 by GenerationSession"],
    "optional_output.py": [
        f"{exporter} outputs output, has_output: zeros -> None" for exporter in ("dynamo ", "trace  ")
    ],
}


def run(name: str, *given: str) -> str:
    if name == "vit_any_size.py":
        pytest.importorskip("vit_pytorch", reason="the example exports a vit_pytorch model")
    if name in ("depth_anything_v2.py", "generation.py", "numpy_loop.py"):
        pytest.importorskip("transformers", reason="the example exports a model of transformers")
    done = run_script(ROOT / "examples" / name, *given, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_example(name):
    printed = run(name)
    for promise in PROMISES[name]:
        assert promise in printed


@pytest.mark.slow  # four files, proven, and eager's own pipeline at two sizes
@pytest.mark.parametrize("denoiser", ["unet", "transformer"])
def test_a_diffusion_pipeline_as_one_folder_makes_the_images_of_eager(denoiser, tmp_path, capsys, monkeypatch):
    pytest.importorskip("diffusers", reason="the example exports a pipeline of diffusers")
    monkeypatch.setattr(sys, "argv", ["diffusion_folder.py", str(tmp_path), *["dit"][: denoiser == "transformer"]])
    # Here, since diffusers imports torchvision, whose operators the tests may have to declare.
    runpy.run_path(str(ROOT / "examples/diffusion_folder.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert len(re.findall(r"(text_encoder|unet|transformer|vae_encoder|vae_decoder): right", printed)) == 4
    errors = [float(one) for one in re.findall(r"4 steps, 2 images of \d+ x \d+: error (\S+)", printed)]
    assert len(errors) == 2
    assert max(errors) < 1e-3
    files = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.onnx")}
    assert files == {f"{part}/model.onnx" for part in ("text_encoder", denoiser, "vae_encoder", "vae_decoder")}


@pytest.mark.slow  # a time
def test_a_skipped_branch_costs_a_tenth_at_most():
    found = re.search(r"skipped \d+ us: (\d\.\d+) of its own time", run("early_exit.py"))
    assert found and float(found[1]) <= 0.1


def test_every_example_is_tested():
    written = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert written == {*PROMISES, "demo.py", "diffusion_folder.py", "early_exit.py", "generation.py"}


BOTH = [(exporter, "llama,whisper") for exporter in ("dynamo", "trace")]


@pytest.mark.slow  # ten seconds; tests/test_export_generation.py compares tokens of smaller models
@pytest.mark.parametrize(("exporter", "models"), [("trace", "llama"), *BOTH])
def test_generated_tokens_are_those_of_eager(exporter, models):
    rows = re.findall(
        r"(\d+) of (\d+) tokens as eager  (\d+) distinct  margin ([\d.]+)  broken cache (\d+) of",
        run("generation.py", "--exporter", exporter, "--models", models),
    )
    assert len(rows) == models.count(",") + 1
    for same, count, distinct, margin, broken in rows:
        assert int(same) == int(count) == 128  # 64 tokens of two texts
        assert int(distinct) >= 20 and float(margin) > 1e-3
        assert int(broken) < 64


@pytest.mark.slow
def test_demo():
    printed = run("demo.py")
    assert printed.count("| right ") == 3
    assert "refused: symbolic for __getitem__" in printed
    assert "reports success;" in printed
