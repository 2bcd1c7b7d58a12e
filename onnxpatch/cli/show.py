"""What goes to the terminal: tables on stdout, progress on stderr; plain text where nobody watches."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from onnxpatch.messages.visible import one_line
from onnxpatch.results.table import table as plain

Report = Callable[[str, int, int], None]


def watched() -> bool:
    """Whether a person looks at stderr: a terminal, and no CI."""
    return sys.stderr.isatty() and not os.environ.get("CI")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout: drawn in a terminal, one line a row elsewhere, so that grep and diff can read it."""
    if not sys.stdout.isatty():
        print(plain(header, rows))
        return
    drawn = Table(title=title, title_justify="left", show_lines=False, header_style="bold")
    for column, name in enumerate(header):  # the first is what one copies and searches for: it stays whole
        drawn.add_column(name, overflow="fold", no_wrap=column == 0 and _short(rows))
    for row in rows:
        drawn.add_row(*(Text(one_line(str(cell))) for cell in row))
    Console().print(drawn)


def _short(rows: Sequence[Sequence[object]]) -> bool:
    return max((len(str(row[0])) for row in rows), default=0) <= Console().width // 3


def as_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def headline(text: str, right: bool) -> None:
    """The verdict, first line of the result, coloured in a terminal."""
    Console(highlight=False, soft_wrap=True).print(Text(one_line(text), style="green" if right else "bold red"))


def line(text: str) -> None:
    """One line on stdout."""
    print(one_line(text))


def complaint(text: str) -> None:
    print(one_line(text), file=sys.stderr)


@contextlib.contextmanager
def progress(title: str) -> Iterator[Report]:
    """A callback (stage, done, of) that draws a bar on stderr; it does nothing where nobody watches."""
    if not watched():
        yield lambda stage, done, of: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda stage, done, of: bar.update(
            task, description=escape(one_line(f"{title}: {stage}")), completed=done, total=of
        )
