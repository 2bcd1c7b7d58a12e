"""The gallery: the recorded runs, each right, with their pages; run again, each is right still."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from tests.html.webpage import self_contained

DOCS = Path(__file__).parents[1] / "docs"
sys.path.append(str(DOCS))
import record_gallery  # noqa: E402

RUNS = json.loads((DOCS / "gallery" / "runs.json").read_text(encoding="utf-8"))
ENTRIES = {entry.name: entry for entry in record_gallery.ENTRIES}
NEEDS = {
    "detector": "ultralytics", "segmenter": "transformers", "depth": "transformers", "pitch": "pesto",
    "llm": "transformers", "vlm": "transformers", "diffusion": "diffusers", "diffusion_folder": "diffusers",
    "time_series": "transformers", "einops_vit": "vit_pytorch",
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_a_recorded_run_is_right_and_has_its_page(name: str) -> None:
    run = RUNS[name]
    assert run["code"] == 0 and f"{name}" in run["command"]
    assert re.search(r"^\S+: right\b", run["output"], re.M)
    if "--html" in run["command"]:  # files of a loop have no page
        self_contained((DOCS / "gallery" / f"{name}.html").read_text(encoding="utf-8"))


def test_the_page_says_what_the_runs_printed() -> None:
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == record_gallery.written(RUNS)


@pytest.mark.slow  # half a minute to two
@pytest.mark.exports
@pytest.mark.parametrize("name", ENTRIES)
def test_the_run_is_right_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NEEDS.get(name, "torch")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.setattr(record_gallery, "PAGES", tmp_path / "pages")
    run = record_gallery.record(ENTRIES[name], tmp_path)
    assert run["code"] == 0 and re.search(r"\bright\b", str(run["output"]))
