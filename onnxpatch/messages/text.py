r"""What messages are made of: text that is safe to show, short paths, amounts, tables, and lines on stderr.

    visible("a\x1b[31mb")   a\x1b[31mb     for errors and HTML pages: control characters are spelled out
    one_line("a\nok")      a ⏎ ok         for lines and table cells
    markdown("a|<b>")      a\|&lt;b&gt;   for Markdown
    fenced("a")                           a code block of Markdown
    relative("/usr/lib/python3/site-packages/timm/layers/pool.py:31")     timm/layers/pool.py:31
    relative("/home/me/project/net.py:7")                                 net.py:7, in /home/me/project
    in_lines("a … 200 characters")        no line over 160, what to do on its own
    counted(2, "size"), in_bytes(1.94e8), in_seconds(42)                  2 sizes, 194 MB, 42 s

The first four and `relative` are called once each, where a text is finished: a second time would escape the escapes,
and what a result holds are whole paths, which tools can open. Lines on stderr say how far a call is (`progress=True`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

# Unicode's categories: control characters, formats (among them those that change the direction of writing), halves of
# surrogate pairs, separators of lines and of paragraphs, private use.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
_KEPT = "\n\t"
_PLAIN = re.compile(r"[\n\t -~]*")
_MARKS = re.compile(r"([\\`*\[\]|])")


def visible(text: str) -> str:
    """`text` with control, format and direction characters spelled out, as `\\x1b` or `\\u202e`. Line breaks stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_spelled_out(char) for char in text)


def _spelled_out(char: str) -> str:
    if char in _KEPT or unicodedata.category(char) not in _HIDDEN:
        return char
    return ascii(char)[1:-1]


def one_line(text: str) -> str:
    """`visible` text on one line: a line break becomes ⏎, so that a name cannot add lines to a report.

    What `in_lines` broke is one line again.
    """
    text = text.replace(f"\n{_GOES_ON}", " ")
    return visible(re.sub(r"[ \t]*\r?\n\s*", " ⏎ ", text.strip("\n")).replace("\t", " "))


def markdown(text: str) -> str:
    """One line for Markdown: HTML tags, table bars, code, emphasis and links are shown as text."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\1", escaped)


def fenced(text: str) -> str:
    """`visible` text as a Markdown code block, with a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{visible(text)}\n{fence}"


WIDTH = 160  # characters of a line
_CLASS = 40  # characters that Python, or the command, writes before the first line of an error
_GOES_ON = "    "  # what the rest of a line begins with
_ENDS = (re.compile(r"[:;] "), re.compile(r"(?<=[.,)]) "), re.compile(" "))


def in_lines(text: str) -> str:
    """`text` without lines over `WIDTH`: what to do comes behind a colon as a rule, and begins a line then."""
    first, *rest = text.split("\n")
    return "\n".join([_broken(first, WIDTH - _CLASS), *(_broken(line, WIDTH) for line in rest)])


def _broken(line: str, room: int) -> str:
    parts = []
    while len(line) > room and (end := _end_in(line, room)):
        parts.append(line[:end].rstrip())
        line, room = _GOES_ON + line[end:].lstrip(), WIDTH
    return "\n".join([*parts, line])


def _end_in(line: str, room: int) -> int:
    """Where a line of so many characters ends: outside of brackets, and not in its first quarter; 0 for nowhere."""
    depth, outside = 0, set()
    for place, char in enumerate(line[: room + 1]):
        depth += (char in "([{") - (char in ")]}")
        if depth <= 0:
            outside.add(place)
    for allowed in (outside, set(range(room + 1))):
        for kind in _ENDS:
            ends = [found.end() for found in kind.finditer(line, room // 4, room + 1)]
            if fitting := [end for end in ends if end - 1 in allowed]:
                return fitting[-1]
    return line.find(" ", room) + 1


_PACKAGES = re.compile(r"(?<![\w.-])(?:[A-Za-z]:)?[\\/][^\s\"'(<>|]*[\\/](?:site|dist)-packages[\\/]")
_ABSOLUTE = re.compile(r"(?<![\w./\\<-])(?:[A-Za-z]:[\\/]|/)(?:[\w.@+~ -]+[\\/])+(?=[\w.@+~-])")


def relative(text: str) -> str:
    """`text` with paths inside site-packages, Python's own library and the working folder as relative ones."""
    if "/" not in text and "\\" not in text:
        return text
    text = _PACKAGES.sub("", text)
    for folder in (os.getcwd(), sysconfig.get_path("stdlib")):
        if len(folder) > 1:  # the root of the file system is part of every path
            text = re.sub(rf"(?<![\w.-]){re.escape(folder.rstrip(os.sep) + os.sep)}", "", text)
    return text


def without_folders(text: str) -> str:
    """`relative` text in which what is still an absolute path is its last part: whoever reads it has other folders.

    Only folders that exist count: names of nodes in a graph begin with a slash as well.
    """
    return _ABSOLUTE.sub(lambda found: "" if os.path.isdir(found[0]) else found[0], relative(text))


def plural(number: int, name: str) -> str:
    """`1 size`, `2 sizes`. name: one whose plural has an s."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def in_bytes(total: float) -> str:
    """The size of a file: `4.2 MB`."""
    for unit in ("B", "KB", "MB"):
        if total < 1000:
            return f"{total:.3g} {unit}"
        total /= 1000
    return f"{total:.3g} GB"


def in_seconds(seconds: float) -> str:
    """`0.4 s`, `42 s`."""
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


_WIDEST, _NARROWEST, _REASON = 72, 12, 50  # characters of a cell, and of a reason that stands beside the others


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Text with a rule below the header, a line for each row, no line over `WIDTH`. Long cells are cut.

    The last column is the reason in every table, and a reason that is cut helps nobody: it goes on below, or stands
    below the others where these are wide.
    """
    cells = [list(header), *safe_cells(rows)]
    widths = _widths(cells)
    before = sum(widths) + 2 * len(widths)
    beside = WIDTH - before >= _REASON
    longest = min(max(len(row[-1]) for row in cells), WIDTH - before)
    rule = "  ".join("-" * width for width in (*widths, longest if beside else 0)).rstrip()
    head, *others = (_row(row, widths, before if beside else 0) for row in cells)
    return "\n".join([head, rule, *others])


def _row(row: Sequence[str], widths: Sequence[int], place: int) -> str:
    """The cells, and the last one from `place` on, or below them for 0."""
    first = "".join(f"{clipped(cell, width):{width}}  " for cell, width in zip(row, widths, strict=False))
    indent = " " * (place or len(_GOES_ON))
    reason = textwrap.wrap(row[-1], WIDTH, initial_indent=indent, subsequent_indent=indent)
    if place:
        return "\n".join([first + reason[0].lstrip(), *reason[1:]] if reason else [first.rstrip()])
    return "\n".join([first.rstrip(), *reason])


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """How wide all columns but the last are: names as they are, the others narrower until all of them fit."""
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(*(row[:-1] for row in cells), strict=True)]
    while sum(widths) + 2 * len(widths) > WIDTH and (widest := max(widths[1:], default=0)) > _NARROWEST:
        widths[widths.index(widest, 1)] -= 1
    return widths


def safe_cells(rows: Iterable[Sequence[object]]) -> list[list[str]]:
    """Each cell as one line of text without control characters."""
    return [[one_line(" ".join(str(cell).split())) for cell in row] for row in rows]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line for each row, with columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown_lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(markdown(cell) for cell in row) + " |" for row in rows]


def clipped(cell: str, most: int = _WIDEST) -> str:
    """At most so many characters, the last of them … where some are left out."""
    return cell if len(cell) <= most else cell[: most - 1] + "…"


Progress = Callable[[str, int, int], None]
_WIDTH = 72  # of the line, so that a shorter one covers a longer one before it


def progress_writer(progress: Progress | bool | None) -> Progress | None:
    """What to call with (stage, done, of): the caller's own function, one that writes on stderr for True, or none."""
    if isinstance(progress, bool):
        return _written if progress else None
    return progress


def _written(stage: str, done: int, of: int) -> None:
    count = f" {done + 1} of {of}" if of else f" {done + 1}"
    line = f"onnxpatch: {one_line(stage)}{count}"[:_WIDTH]
    tell(f"\r{line:<{_WIDTH}}", end="\n" if of and done + 1 >= of else "")


def tell(text: str, end: str = "\n") -> None:
    """Print on stderr, if it is there and can be written: what is told changes nothing."""
    for spell in _spelled[-1:]:
        text = spell(text)
    # print() takes None, a closed stderr, for stdout; a stream that Python code closed raises ValueError.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, end=end, file=sys.stderr, flush=True)


_spelled: list[Callable[[str], str]] = []


@contextlib.contextmanager
def spelled(by: Callable[[str], str]) -> Iterator[None]:
    """Inside the block, what is told on stderr is spelled so, from every thread: as a shell takes it, say."""
    _spelled.append(by)
    try:
        yield
    finally:
        _spelled.remove(by)
