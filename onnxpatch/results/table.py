"""Tables: the cells made safe to show, then as aligned text or as Markdown.

    module  class   patch             table(header, rows)
    ------  ------  ----------------
    blocks  Linear  linear-as-matmul

`report_text` takes `aligned` and `markdown_lines`, plans take `table`, and the command line takes `safe_cells` and
leaves drawing to rich where its output is a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxpatch.messages.visible import markdown, one_line

_WIDEST = 72  # characters of a cell, but for the last column


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Text with a rule below the header and one line for each row. Long cells are cut, but for those at the end.

    The last column is the reason in every table, and a reason that is cut helps nobody.
    """
    cut = [[*(clipped(cell) for cell in row[:-1]), *row[-1:]] for row in safe_cells(rows)]
    lines = aligned([list(header), *cut])
    widths = [max(len(row[column]) for row in (header, *cut)) for column in range(len(header))]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


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
