"""The command `onnxpatch`. Exit codes: 0 right, 1 wrong or refused, 2 bad input, 3 a fault of onnxpatch itself."""

from __future__ import annotations

import io
import sys

_EXTRA = ("typer", "rich", "jinja2", "click")


def main() -> None:
    """Entry point of the console script. Without the extra `cli` it says how to get it, and exits with 2."""
    try:
        from onnxpatch.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        print(f"the command line needs {error.name}: pip install 'onnxpatch[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    for stream in (sys.stdout, sys.stderr):  # a pipe in another encoding than UTF-8 must not end a command
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app(prog_name="onnxpatch")
