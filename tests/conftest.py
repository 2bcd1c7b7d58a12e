"""Shared by every test: quiet exporters, one torch thread, a registry of its own, torchvision beside a CPU torch."""

from __future__ import annotations

import difflib
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

import onnxpatch
from benchmarks import torchvision_ops
from tests import tiers
from tests.layers import Doubling

torch.set_num_threads(1)
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
torchvision_ops.declare()
# What fails is printed with the line that makes it again, and is tried first by the next run, outside the checkout.
# A machine that is busy fails no property: there is no deadline.
settings.register_profile(
    "kept",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=DirectoryBasedExampleDatabase(Path(tempfile.gettempdir()) / "onnxpatch-examples"),
)
settings.load_profile("kept")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="write tests/snapshots anew, as the code is now")
    tiers.add_options(parser.addoption)


def pytest_configure(config: pytest.Config) -> None:
    tiers.configure(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark(items)


@pytest.fixture
def same_as_snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with a file of tests/snapshots, and fails with the difference; --accept writes the file."""

    def compare(name: str, text: str) -> None:
        file = Path(__file__).parent / "snapshots" / name
        if request.config.getoption("--accept"):
            file.write_text(text, encoding="utf-8")
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        changes = difflib.unified_diff(before.splitlines(), text.splitlines(), "committed", "now", lineterm="", n=1)
        if before != text:
            accept = f"python -m pytest {request.node.path.relative_to(request.config.rootpath)} --accept"
            shown = "\n".join(changes)
            pytest.fail(f"{file.name} differs:\n{shown}\nIf this is meant: {accept}", pytrace=False)

    return compare


@pytest.fixture
def registry() -> onnxpatch.Registry:
    """An empty registry, so that a test's patches reach no other test."""
    return onnxpatch.Registry()


@pytest.fixture
def kit(registry: onnxpatch.Registry) -> onnxpatch.Registry:
    """A registry with a class patch, a torch function patch, a Python function patch, and a builtin."""
    onnxpatch.patch("tests.layers.Layer", why="w", name="doubling", registry=registry)(Doubling)
    for target in ("torch.nn.functional.relu", "math.sqrt", "builtins.int"):

        def stand_in(original: Callable[..., object], *args: object, **kwargs: object) -> object:
            return original(*args, **kwargs)

        onnxpatch.patch(target, why="w", name=target, registry=registry)(stand_in)
    return registry


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)
