"""Runs the command line inside the test's process."""

from __future__ import annotations

from typer.testing import CliRunner

from onnxpatch.cli.app import app
from onnxpatch.messages.text import WIDTH, one_line


def run(*args: str):
    return CliRunner().invoke(app, list(args), prog_name="onnxpatch")


def one_error(done) -> str:
    """What a command says in its one error, which is broken into lines where it is long."""
    said = one_line(done.stderr.strip())
    assert "⏎" not in said and max(map(len, done.stderr.splitlines())) <= WIDTH
    return said
