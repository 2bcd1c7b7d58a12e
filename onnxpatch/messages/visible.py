"""Names from models and files as text that a terminal, Markdown or a page can show: nothing in them acts or hides.

Every output form calls one of these once, where its text is finished: `visible` for errors and pages, `one_line` for
lines and table cells, `markdown` for Markdown.
"""

from __future__ import annotations

import re
import unicodedata

# Control characters, formats (among them those that turn the direction of writing), halves of surrogate pairs,
# separators of lines and paragraphs, characters of private use.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
_KEPT = "\n\t"
_PLAIN = re.compile(r"[\n\t -~]*")
_MARKS = re.compile(r"([\\`*\[\]|])")


def visible(text: str) -> str:
    """`text` with control, format and direction characters spelled out: `\\x1b`, `\\u202e`. Line breaks stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_spelled(char) for char in text)


def _spelled(char: str) -> str:
    if char in _KEPT or unicodedata.category(char) not in _HIDDEN:
        return char
    return ascii(char)[1:-1]


def one_line(text: str) -> str:
    """The same on one line; a line break shows as ⏎, so that no name makes lines of its own."""
    return visible(re.sub(r"[ \t]*\r?\n\s*", " ⏎ ", text.strip("\n")).replace("\t", " "))


def markdown(text: str) -> str:
    """The same as Markdown's plain text: HTML tags, table bars, code, emphasis and links show as they are written."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\1", escaped)


def fenced(text: str) -> str:
    """A Markdown block of code, whose fence no run of backticks in `text` ends."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{visible(text)}\n{fence}"
