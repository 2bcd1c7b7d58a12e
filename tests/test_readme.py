"""README: short, its script runs and prints what is shown, its cures cure, its figures add up, its links lead on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import onnxpatch
from onnxpatch.errors import error_chain
from tests.child import run_script

pytestmark = pytest.mark.exports

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SUBJECTS = ("vit_pytorch", "transformers_vision", "timm", "torchvision")


WRONG_FILE = (ROOT / "docs" / "explanation" / "a-wrong-file.md").read_text(encoding="utf-8")


def after(mark: str, text: str = README) -> str:
    """The block or table that follows a comment of the README, or of another page."""
    rest = text.split(f"<!-- {mark} -->\n", 1)[1]
    return rest.split("```")[1].partition("\n")[2] if rest.startswith("```") else rest.split("\n\n")[0]


class Resized(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bicubic", antialias=True)


class Branching(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x - 1


def test_it_is_short():
    assert len(README.split()) <= 900


@pytest.mark.quick  # what everybody reads first
def test_the_first_script_prints_what_is_shown(tmp_path):
    """Lines as shown; `…` stands for the rest of a line, or for lines."""
    (tmp_path / "first.py").write_text(after("first script", WRONG_FILE), encoding="utf-8")
    done = run_script(tmp_path / "first.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    for line in after("printed by the first script", WRONG_FILE).splitlines():
        if line != "…":
            assert any(one.startswith(line.rstrip("…")) for one in printed), line


@pytest.mark.parametrize(("model", "plain", "row"), [(Resized(), False, 0), (Branching(), True, 3)])
def test_each_error_is_cured_by_the_line_beside_it(model, plain, row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error, cure = re.findall(r"\|.*?`([^`]*)` \| `(onnxpatch\.export[^|]*)`", after("chooser"))[row // 3]
    model, args = model.eval(), (torch.randn(2, 3, 8, 8),)
    with pytest.raises(Exception) as refused:
        torch.onnx.export(model, args, "plain.onnx", dynamo=plain, verbose=False)
    said = " ".join(str(one) for one in error_chain(refused.value))
    assert error in said
    assert eval(cure, {"onnxpatch": onnxpatch, "model": model, "args": args}).ok


def test_the_summary_is_the_sum_of_the_measured_tables():
    totals: dict[tuple[str, str], list[int]] = {}
    for subject in SUBJECTS:
        text = (ROOT / "benchmarks" / "results" / f"coverage_{subject}.md").read_text(encoding="utf-8")
        head, *rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table(text)]
        for exporter, how, *numbers in rows[1:]:
            found = dict(zip(head[2:], (int(n or 0) for n in numbers), strict=True))
            row = [found[name] for name in ("right", "silently wrong", "refused")] + [found.get("eager unsteady", 0)]
            before = totals.setdefault((exporter, how), [0, 0, 0, 0])
            totals[exporter, how] = [a + b for a, b in zip(before, row, strict=True)]
    shown = re.findall(r"\| (dynamo|trace) \| (plain|onnxpatch) \| (.*) \|", after("summary"))
    names = {"plain": "without", "onnxpatch": "with the kit"}
    assert len(shown) == 4
    for exporter, how, cells in shown:
        assert [int(n) for n in re.findall(r"\d+", cells)] == totals[exporter, names[how]]
    assert f"{sum(totals['dynamo', 'without'])} models" in README


def table(text: str) -> list[str]:
    """The lines of the first table."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    return lines[start : lines.index("", start)]


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.slow  # a whole model of timm
def test_the_five_lines_print_what_is_shown(tmp_path):
    pytest.importorskip("timm", reason="the five lines export a model of timm")
    declared = "from benchmarks.torchvision_ops import declare; declare()\n"
    (tmp_path / "five.py").write_text(declared + after("five lines"), encoding="utf-8")
    done = run_script(tmp_path / "five.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = after("printed by the five lines").splitlines()
    for line, printed in zip(shown, done.stdout.splitlines(), strict=True):
        assert printed.startswith(line.rstrip("…").rstrip()), printed


def test_the_families_are_those_of_the_measurements():
    """Each row's figures are those of docs/benchmarks.md, which says right / silently wrong."""
    measured = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").replace("*", "")
    named = {"language models with a cache": "text decoders with a cache"}
    for family, *cells in re.findall(r"\| ([a-z][\w -]+) \| (\d+) of (\d+) \| (\d+) \| (\d+) \| (\d+) \|", README):
        row = next(line for line in measured.splitlines() if line.startswith(f"| {named.get(family, family)} |"))
        models, *right = re.findall(r"\| (\d+)(?: / 0| / \d+)? (?=\|)", row)
        plain, of, kit, dynamo, dynamo_kit = cells
        assert (of, [plain, kit, dynamo, dynamo_kit]) == (models, right), family
