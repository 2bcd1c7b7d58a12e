"""Printing: tables and lines on stdout, errors and progress on stderr; colours and drawings in a terminal only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from onnxpatch.messages.visible import one_line
from onnxpatch.results.table import safe_cells
from onnxpatch.results.table import table as text_table

ProgressCallback = Callable[[str, int, int], None]  # (stage, done, total)


def is_interactive() -> bool:
    """Whether a person may be watching: stderr is a terminal, and this is not a CI job."""
    return sys.stderr.isatty() and not os.environ.get("CI")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table: drawn in a terminal, elsewhere one line for each row, so that grep and diff can read it."""
    if not sys.stdout.isatty():
        print(text_table(header, rows))
        return
    drawn = Table(title=title, title_justify="left", show_lines=False, header_style="bold")
    cells = safe_cells(rows)
    # Names in the first column are copied and searched for, so they are not broken unless they would take the width.
    unbroken = max((len(row[0]) for row in cells), default=0) <= Console().width // 3
    for column, name in enumerate(header):
        drawn.add_column(name, overflow="fold", no_wrap=column == 0 and unbroken)
    for row in cells:
        # As Text: rich would take brackets in a name for its markup.
        drawn.add_row(*map(Text, row))
    Console().print(drawn)


def as_json(value: object) -> None:
    """Print a value of plain types as JSON."""
    print(json.dumps(value, indent=2))


def headline(text: str, right: bool) -> None:
    """Print the first line of a result, in a terminal green where it is right and red where it is not."""
    Console(highlight=False, soft_wrap=True).print(Text(one_line(text), style="green" if right else "bold red"))


def line(text: str) -> None:
    """Print one line on stdout."""
    print(one_line(text))


def print_error(text: str) -> None:
    """Print one line on stderr."""
    print(one_line(text), file=sys.stderr)


@contextlib.contextmanager
def progress(title: str) -> Iterator[ProgressCallback]:
    """Gives the block a callback that draws a bar on stderr; it does nothing where nobody is watching."""
    # A log would have a line for each step of the bar.
    if not is_interactive():
        yield lambda stage, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda stage, done, total: bar.update(
            task, description=escape(one_line(f"{title}: {stage}")), completed=done, total=total
        )
