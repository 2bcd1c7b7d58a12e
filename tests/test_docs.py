"""The pages: every public name, command and patch has its place, and the build is clean."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onnxpatch

ROOT = Path(__file__).parents[1]
WITH_MKDOCS = importlib.util.find_spec("mkdocs") is not None and importlib.util.find_spec("mkdocstrings") is not None


def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_a_reference():
    told = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    named = set(re.findall(r"^::: onnxpatch(?:\.\w+)*\.(\w+)$", told, re.MULTILINE))
    errors = {name for name in onnxpatch.__all__ if name.endswith("Error")}
    assert errors == {name for name in vars(onnxpatch.errors) if name.endswith("Error")}
    assert "::: onnxpatch.errors" in told  # all of them on one page
    assert set(onnxpatch.__all__) - errors - named == set()


def test_every_public_name_says_what_it_is():
    silent = [name for name in onnxpatch.__all__ if not (getattr(onnxpatch, name).__doc__ or "").strip()]
    assert silent == []


def test_every_command_is_described():
    from onnxpatch.cli.app import app

    told = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        assert f"`onnxpatch {command.name}" in told


@pytest.mark.parametrize("patch", list(onnxpatch.REGISTRY), ids=lambda patch: patch.name)
def test_every_patch_has_a_page(patch):
    page = hooks().patch_page(patch)
    for heading in ("## Before", "## After", "## Proof", "## When"):
        assert heading in page
    assert " ".join(patch.why.split())[:40].replace('"', "'").replace("|", "\\|") in page
    after = page.split("## After")[1].split("## Proof")[0]
    stand_in = inspect.unwrap(patch.stand_in)
    assert ("lambda" if "<lambda>" in stand_in.__qualname__ else stand_in.__name__) in after
    assert "Run it:" in page.split("## Proof")[1]


def test_the_causes_name_patches_with_a_proof():
    rows = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8").splitlines()
    named = {name for row in rows if row.startswith("| ") for name in re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", row)}
    proven = {patch.name for patch in onnxpatch.REGISTRY if patch.proof is not None}
    assert len(named) > 50 and named - proven == {"nearest-exact"}


def test_the_index_lists_every_patch():
    page = hooks().index_page(sorted(onnxpatch.REGISTRY, key=lambda patch: patch.name))
    assert all(f"]({patch.name}.md)" in page for patch in onnxpatch.REGISTRY)


@pytest.mark.slow
@pytest.mark.skipif(not WITH_MKDOCS, reason="needs the extra docs: pip install 'onnxpatch[docs]'")
def test_the_pages_build_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for patch in onnxpatch.REGISTRY:
        assert patch.name in (tmp_path / "patches" / patch.name / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.schema.json").is_file()
