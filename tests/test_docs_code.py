"""Every block of Python in the docs runs, page by page, in a folder of its own; every link between pages leads on."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path

import pytest

import onnxpatch

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "```python" in path.read_text(encoding="utf-8"))
GENERATED = {"contributing.md", "changelog.md", "patches/index.md", "report.html"}


QUICK = ("tutorial.md", "none-outputs.md", "half-precision.md")  # the others take half a minute or more together


def marks(page: Path) -> list[pytest.MarkDecorator]:
    return [] if page.name in QUICK else [pytest.mark.slow]


def needed(page: Path) -> list[str]:
    return re.findall(r"<!-- needs (\w+) -->", page.read_text(encoding="utf-8"))


@pytest.mark.exports
@pytest.mark.parametrize("page", [pytest.param(p, marks=marks(p), id=str(p.relative_to(DOCS))) for p in PAGES])
def test_every_block_of_python_runs(page, tmp_path, monkeypatch):
    for library in needed(page):
        pytest.importorskip(library, reason=f"the page exports a model of {library}")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "page.py").write_text("\n\n".join(blocks), encoding="utf-8")
    before = {patch.name for patch in onnxpatch.REGISTRY}
    try:
        runpy.run_path(str(tmp_path / "page.py"))
    finally:
        for name in {patch.name for patch in onnxpatch.REGISTRY} - before:
            onnxpatch.REGISTRY.remove(name)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_links_between_pages(page):
    for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)(#[^)\s]*)?\)", page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        if str(found.relative_to(DOCS)) in GENERATED or found.name.endswith(".schema.json"):
            continue
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}
            assert anchor[1:] in slugs, f"{target}{anchor}"


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if str(p.relative_to(DOCS)) not in menu] == []


def test_the_modules_of_the_reference_exist():
    for page in (DOCS / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, attribute = name.rpartition(".")
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(module), attribute), name
