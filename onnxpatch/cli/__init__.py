"""The command `onnxpatch`. Exit codes: 0 right, 1 wrong or refused, 2 bad input, 3 an internal error.

May import everything else. Start reading at `app`, which lists the commands. Here is what runs before: a closed or full
stdout changes no file and no exit code.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

_EXTRA = ("typer", "rich", "jinja2", "click")


def main() -> None:
    """Run the console script. Without the libraries of the extra `cli`, say how to install them, and exit with 2."""
    _open_missing_streams()
    try:
        from onnxpatch.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        print(f"the command line needs {error.name}: pip install 'onnxpatch[cli]'", file=sys.stderr)
        raise SystemExit(2) from None
    app(prog_name="onnxpatch")


def _open_missing_streams() -> None:
    """Give stdin, stdout and stderr something to be, if they were closed; make the last two take any text.

    Otherwise the next file that is opened gets their number, and what C++ prints goes into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until the process ends
        if isinstance(stream, io.TextIOWrapper):  # a pipe may have an encoding without the characters that are printed
            stream.reconfigure(errors="replace")
        setattr(sys, name, _Lenient(name, stream))


class _Lenient:
    """A stream of which the first error is a line on stderr, and the last: what comes later is dropped."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream, self._lost = name, stream, False

    def write(self, text: str) -> int:
        """Write, where that is possible."""
        try:
            return len(text) if self._lost else self._stream.write(text)
        except (OSError, ValueError) as error:
            return self._lose(error, len(text))

    def flush(self) -> None:
        """Flush, where that is possible. Python does so at its end, and would exit with 120."""
        try:
            if not self._lost:
                self._stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error, 0)

    def _lose(self, error: Exception, written: int) -> int:
        self._lost = True
        # Nobody is told where a reader has had enough, as in `| head`.
        if self._name == "stdout" and getattr(error, "errno", None) != errno.EPIPE:
            said = getattr(error, "strerror", None) or error
            print(f"onnxpatch: stdout cannot be written ({said}): the result is not shown", file=sys.stderr)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
