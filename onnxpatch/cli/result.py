"""A report on its way out: a table, JSON or Markdown on stdout."""

from __future__ import annotations

from typing import Any

from onnxpatch.cli import show


def hand_over(report: Any, json: bool, markdown: bool) -> None:
    """Any result object with `.ok`, `.to_json()`, `.to_markdown()` and `str()`."""
    if json:
        print(report.to_json())
    elif markdown:
        print(report.to_markdown())
    else:
        headline, _, rest = str(report).partition("\n")
        show.headline(headline, report.ok)
        if rest:
            print(rest)
