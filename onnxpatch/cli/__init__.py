"""The command `onnxpatch`. Exit codes: 0 right, 1 wrong or refused, 2 bad input, 3 an internal error.

May import everything else. Start reading at `app`, which lists the commands; each has a file of its own.
"""

from __future__ import annotations

import sys

from onnxpatch.cli.terminal import open_missing_streams

_EXTRA = ("typer", "rich", "jinja2", "click")


def main() -> None:
    """Run the console script. Without the libraries of the extra `cli`, say how to install them, and exit with 2."""
    open_missing_streams()
    try:
        from onnxpatch.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        print(f"the command line needs {error.name}: pip install 'onnxpatch[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    app(prog_name="onnxpatch")
