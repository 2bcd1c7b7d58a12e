"""What make check, make test and make test-all run: the table of durations, and the guard against exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiers
from tests.child import run_script

ROOT = Path(__file__).parents[1]


def test_of_a_test_with_long_cases_alone_the_shortest_stays_unless_it_is_very_long():
    took = {"test_a[1]": 3.0, "test_a[2]": 1.4, "test_b[1]": 9.0, "test_b[2]": 0.2, "test_c": 60.0, "": 7.0}
    assert tiers.long_cases({"tests/test_x.py": took}) == {
        "tests/test_x.py::test_a[1]",
        "tests/test_x.py::test_b[1]",
        "tests/test_x.py::test_c",
    }


def test_a_table_is_read_as_it_was_written():
    took = {"test_a[one, two]": 3.0, "test_a[3]": 0.1, "test_b[1]": 0.1, "test_c": 0.4}
    read = tiers.read(tiers.written({"tests/test_x.py": took}))
    assert read == {"tests/test_x.py": {"test_a[one, two]": 3.0, "test_a[3]": 0.1, "test_c": 0.4, "": 0.1}}
    assert tiers.read(tiers.written(read)) == read


def test_the_committed_table_names_files_that_are_there():
    seconds = tiers.read(tiers.TABLE.read_text(encoding="utf-8"))
    assert seconds and [file for file in seconds if not (ROOT / file).exists()] == []


EXPORTING = """
import contextlib, pytest, torch

def asked():
    torch.onnx.export(torch.nn.ReLU(), (torch.ones(2),), dynamo=True)

def test_plainly():
    asked()

def test_and_gets_over_it():
    with contextlib.suppress(BaseException):
        asked()

@pytest.fixture(scope="module")
def made():
    asked()

def test_in_a_fixture(made):
    pass

def test_nothing():
    pass

@pytest.mark.sample
def test_as_a_sample():
    torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
"""


def run(file: Path, *options: str) -> str:
    # A file of its own under the hooks of this suite's conftest.
    asked = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:xdist", *options, str(file)]
    return run_script(f"import sys, pytest; sys.exit(pytest.main({asked!r}))", cwd=ROOT).stdout


@pytest.mark.quick  # two seconds, and what guards make check
def test_an_export_fails_make_check_unless_it_is_a_sample(tmp_path):
    file = tmp_path / "test_exporting.py"
    file.write_text(EXPORTING, encoding="utf-8")
    said = run(file, "--no-exports")
    assert "2 failed, 2 passed" in said and "1 error" in said
    assert said.count(tiers.EXPORTS) >= 3


def test_durations_are_written(tmp_path):
    file, table = tmp_path / "test_two.py", tmp_path / "durations.txt"
    file.write_text("def test_one(): pass\ndef test_long():\n    for _ in range(70_000_000): pass\n", encoding="utf-8")
    run(file, f"--durations-into={table}")
    assert "test_long" in table.read_text(encoding="utf-8") and "test_one" not in table.read_text(encoding="utf-8")
