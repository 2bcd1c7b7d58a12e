r"""Makes text safe to show: names in models and files may have escape sequences, line breaks or Markdown in them.

    visible("a\x1b[31mb")   a\x1b[31mb     for errors and HTML pages: control characters are spelled out
    one_line("a\nok")      a ⏎ ok         for lines and table cells
    markdown("a|<b>")      a\|&lt;b&gt;   for Markdown
    fenced("a")                           a code block of Markdown

Each is called once, where a text is finished: a second time would escape the escapes.
"""

from __future__ import annotations

import re
import unicodedata

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


def said_by(error: BaseException) -> str:
    """What an exception says; a remark where its own `__str__` raises."""
    try:
        return str(error)
    except Exception as again:
        return f"its __str__ raises ({type(again).__name__})"


def one_line(text: str) -> str:
    """`visible` text on one line: a line break becomes ⏎, so that a name cannot add lines to a report."""
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
