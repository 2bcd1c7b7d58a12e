"""What to type is said in the shell's words on the command line."""

from __future__ import annotations

import pytest

from onnxpatch.cli.show import as_typed, errors_in_one_line
from onnxpatch.messages.text import tell


@pytest.mark.parametrize(
    ("python", "shell"),
    [
        ("next time: onnxpatch.export(model, ..., exclude='gate', branches=True)",
         "next time: onnxpatch export ... --exclude gate --branches"),
        ("onnxpatch.export(model, ..., exporter='trace', only=(), bounds='narrow')",
         "onnxpatch export ... --exporter trace --exclude '*' --bounds narrow"),
        ("onnxpatch.export(model, ..., exclude=('a b', 'c'), opset_version=20): more",
         "onnxpatch export ... --exclude 'a b' --exclude c --opset 20: more"),
        ("onnxpatch.export(model, ...)", "onnxpatch export ..."),
        ("branches=True exports both sides, check=False compares nothing",
         "--branches exports both sides, --no-check compares nothing"),
        ("give max_seconds=600, or max_seconds=", "give --max-seconds 600, or max_seconds="),
        ("x.shape == (2, 3), T=5, data= with tolerance=0.01", "x.shape == (2, 3), T=5, data= with --tolerance 0.01"),
    ],
)  # fmt: skip
def test_calls_and_keywords(python: str, shell: str) -> None:
    assert as_typed(python) == shell


def test_what_is_told_meanwhile_is_spelled_for_the_shell(capsys):
    with errors_in_one_line(debug=False):
        tell("onnxpatch: Net: attempt 2, branches=True")
    tell("branches=True")
    assert capsys.readouterr().err.splitlines() == ["onnxpatch: Net: attempt 2, --branches", "branches=True"]
