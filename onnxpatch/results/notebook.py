"""A result as a small piece of HTML, which notebooks show for `_repr_html_`: a headline, a table, what was found.

It has no style sheet: the notebook's own applies, light or dark. The verdict is a coloured mark with a text of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from onnxpatch.messages.visible import one_line
from onnxpatch.results.table import safe_cells

_MARKS = {"good": ("#1a7f37", "✓"), "bad": ("#cf222e", "✗"), "": ("#57606a", "·")}  # white stands out from each


def fragment(
    headline: str,
    state: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    findings: Iterable[str],
    caption: str,
    opened: bool = False,
) -> str:
    """The HTML. state: good, bad or "". caption: what the table has, shown before it is opened. opened: at once."""
    colour, mark = _MARKS[state]
    style = f"background:{colour};color:#fff;border-radius:4px;padding:1px 7px;margin-right:6px"
    parts = [f'<p><span style="{style}">{mark}</span><strong>{escape(one_line(headline))}</strong></p>']
    listed = "".join(f"<li>{escape(one_line(finding))}</li>" for finding in findings)
    parts += [f"<ul>{listed}</ul>"] if listed else []
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in safe_cells(rows))
    if body:
        head = f"<thead><tr>{_cells('th', header)}</tr></thead>"
        table = f"<table>{head}<tbody>{body}</tbody></table>"
        # A report may have dozens of rows.
        parts.append(f"<details{' open' if opened else ''}><summary>{escape(caption)}</summary>{table}</details>")
    return "".join(parts)


def _cells(tag: str, cells: Sequence[str]) -> str:
    # Notebooks set cells right and in one line: a reason is neither.
    return "".join(f'<{tag} style="text-align:left;white-space:normal">{escape(cell)}</{tag}>' for cell in cells)
