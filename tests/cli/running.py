"""Runs the command line inside the test's process."""

from __future__ import annotations

from typer.testing import CliRunner

from onnxpatch.cli.app import app


def run(*args: str):
    return CliRunner().invoke(app, list(args), prog_name="onnxpatch")
