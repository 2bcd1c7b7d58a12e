"""A result as a small piece of HTML, which notebooks show for `_repr_html_`: a headline, a table, what was found.

It has no style sheet: the notebook's own applies, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from onnxpatch.messages.visible import one_line
from onnxpatch.results.table import safe_cells


def fragment(
    headline: str, header: Sequence[str], rows: Iterable[Sequence[object]], findings: Iterable[str], caption: str
) -> str:
    """The HTML. caption: what the table has, shown before it is opened."""
    parts = [f"<p><strong>{escape(one_line(headline))}</strong></p>"]
    listed = "".join(f"<li>{escape(one_line(finding))}</li>" for finding in findings)
    parts += [f"<ul>{listed}</ul>"] if listed else []
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in safe_cells(rows))
    if body:
        head = f"<thead><tr>{_cells('th', header)}</tr></thead>"
        table = f"<table>{head}<tbody>{body}</tbody></table>"
        # Closed at first: a report may have dozens of rows.
        parts.append(f"<details><summary>{escape(caption)}</summary>{table}</details>")
    return "".join(parts)


def _cells(tag: str, cells: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
