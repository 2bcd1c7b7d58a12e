"""The lines of Python around a place, coloured, the one at fault marked."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from onnxpatch.html.code import coloured_lines

_REACH = 5


@dataclass(frozen=True)
class Line:
    """One line of source as HTML; `at`: it is the one that was asked for."""

    number: int
    code: str
    at: bool


def around(source: str) -> list[Line]:
    """The line at `source` (file:line) and its neighbours; none where the file cannot be read or is shorter."""
    file, _, number = source.rpartition(":")
    lines = linecache.getlines(file)
    if not number.isdecimal() or not 1 <= int(number) <= len(lines):
        return []
    at = int(number)
    first, last = max(at - _REACH, 1), min(at + _REACH, len(lines))
    shown = _coloured(lines, first, last)
    return [Line(n, code, n == at) for n, code in enumerate(shown, first) if code or first < n < last]


def _coloured(lines: list[str], first: int, last: int) -> list[str]:
    """Lines first to last (from 1), dedented. The whole file is read, lest a string's end be taken for its start."""
    plain = [line.rstrip("\r\n").expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in plain[first - 1 : last] if line.strip()), default=0)
    bare = [line.removeprefix(" " * margin) for line in plain]
    return coloured_lines("\n".join(bare))[first - 1 : last]
