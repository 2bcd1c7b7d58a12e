"""The lines of a source file around one line, with colours, for the page of a diagnosis."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from onnxpatch.html.code import coloured_lines

_REACH = 5  # lines before and after


@dataclass(frozen=True)
class Line:
    """One line of source as HTML. at: whether it is the line that was asked for."""

    number: int
    code: str
    at: bool


def around(source: str) -> list[Line]:
    """The line at `source`, written as file:line, and its neighbours. [] where the file has no such line."""
    file, _, number = source.rpartition(":")
    lines = linecache.getlines(file)
    if not number.isdecimal() or not 1 <= int(number) <= len(lines):
        return []
    at = int(number)
    first, last = max(at - _REACH, 1), min(at + _REACH, len(lines))
    coloured = _coloured(lines, first, last)
    return [Line(n, code, n == at) for n, code in enumerate(coloured, first) if code or first < n < last]


def _coloured(lines: list[str], first: int, last: int) -> list[str]:
    """Lines `first` to `last`, counted from 1, dedented.

    The whole file is coloured: a string that begins above the first line would otherwise seem to begin at its end.
    """
    plain = [line.rstrip("\r\n").expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in plain[first - 1 : last] if line.strip()), default=0)
    bare = [line.removeprefix(" " * margin) for line in plain]
    return coloured_lines("\n".join(bare))[first - 1 : last]
