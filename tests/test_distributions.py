"""Other distributions add patches and runtimes by entry points; the wheel works from a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = """
import numpy, onnxpatch
from onnxpatch.onnxfile.runtimes.interface import REFERENCE

@onnxpatch.patch("acme_kit.Doubling", why="a test", name="acme-doubling")
class Doubled:
    def forward(self, x):
        return x + x

class AcmeRuntime(type(REFERENCE)):
    name = "acme"
    distribution = "acme-kit"
"""
ENTRY_POINTS = """
[onnxpatch.patches]
acme = acme_kit
broken-patches = acme_kit_that_is_not_there

[onnxpatch.runtimes]
acme = acme_kit:AcmeRuntime
broken-runtime = acme_kit:NoSuchRuntime
"""
ASKED = """
import onnxpatch
from onnxpatch.onnxfile.runtime import runtimes
assert "acme-doubling" in onnxpatch.REGISTRY and len(list(onnxpatch.REGISTRY)) > 50
assert [name for name in onnxpatch.REGISTRY.failures if "broken-patches" in name], onnxpatch.REGISTRY.failures
found, failures = runtimes()
assert "acme" in found and "onnxruntime" in found
assert [name for name in failures if "broken-runtime" in name], failures
"""


@pytest.fixture
def plug_in(tmp_path: Path) -> Path:
    """An installed distribution, as pip leaves it: a module and its metadata."""
    folder = tmp_path / "installed"
    metadata = folder / "acme_kit-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "acme_kit.py").write_text(CODE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kit\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def run(code: str, *folders: Path, where: Path) -> None:
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=where, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.quick  # the only test of plug-ins as they are installed
def test_a_distribution_adds_a_patch_and_a_runtime_and_broken_ones_are_named(plug_in: Path, tmp_path: Path) -> None:
    run(ASKED, plug_in, ROOT, where=tmp_path)


@pytest.mark.slow
def test_the_wheel_and_the_source_distribution_are_whole(plug_in: Path, tmp_path: Path) -> None:
    """Built from what git has, the wheel unpacked elsewhere: it has every patch, and needs no file beside it."""
    source, built, installed = (tmp_path / name for name in ("source", "built", "wheel"))
    source.mkdir()
    archive = tmp_path / "source.tar"
    subprocess.run(["git", "archive", "-o", str(archive), "HEAD"], cwd=ROOT, check=True)
    with tarfile.open(archive) as files:
        files.extractall(source, filter="data")
    build = f"import os, setuptools.build_meta as b; os.makedirs({str(built)!r}); "
    build += f"b.build_sdist({str(built)!r}); b.build_wheel({str(built)!r})"
    run(build, where=source)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(next(built.glob("*.whl"))), str(installed)], check=True)
    with tarfile.open(next(built.glob("*.tar.gz"))) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert names >= {"CHANGELOG.md", "docs/index.md", "examples/demo.py", "tests/conftest.py", "README.md", "LICENSE"}
    assert names >= {"noxfile.py", "benchmarks/proofs.py", "SECURITY.md", "patches/einops/functions.py", "mkdocs.yml"}
    metadata = next(installed.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    for field in ("Author", "Project-URL", "License-Expression", "Requires-Python", "Description-Content-Type"):
        assert f"\n{field}: " in metadata, metadata[:2000]
    here = f"import onnxpatch; assert onnxpatch.__file__.startswith({str(installed)!r}), onnxpatch.__file__\n"
    run(here + ASKED + "assert onnxpatch.drift().rows\n", plug_in, installed, where=tmp_path)
