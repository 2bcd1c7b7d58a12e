"""Prints a report or a diagnosis on stdout: as text, JSON or Markdown."""

from __future__ import annotations

from onnxpatch.cli import show
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.results.report import Report


def print_result(result: Report | Diagnosis, json: bool, markdown: bool) -> None:
    """Print a result. json goes before markdown; without both, text with the headline coloured in a terminal."""
    if json:
        print(result.to_json())
    elif markdown:
        print(result.to_markdown())
    else:
        headline, _, rest = str(result).partition("\n")
        show.headline(headline, result.ok)
        if rest:
            print(rest)
