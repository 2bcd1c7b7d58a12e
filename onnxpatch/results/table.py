"""Plain-text tables for plans and reports printed without any terminal library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnxpatch.messages.visible import one_line

_WIDEST = 72


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell, long cells but the last cut; one line a row."""
    cells = [[str(cell) for cell in header], *(_cut(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _cut(row: Sequence[object]) -> list[str]:
    # The last column runs to the end of the line: reasons are there, and a cut reason helps nobody.
    cells = [one_line(" ".join(str(cell).split())) for cell in row]
    return [cell if len(cell) <= _WIDEST else cell[: _WIDEST - 1] + "…" for cell in cells[:-1]] + cells[-1:]
