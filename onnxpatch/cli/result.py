"""Prints a report or a diagnosis on stdout: as text, JSON or Markdown."""

from __future__ import annotations

from onnxpatch.cli import show
from onnxpatch.cli.spelled import as_typed
from onnxpatch.errors import InputError
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.results.report import Report


def check_form(json: bool, markdown: bool) -> None:
    """Raise InputError where two forms of output are asked for, before any work."""
    if json and markdown:
        raise InputError("--json and --markdown are two forms of one result: give one of them")


def check_required(require: str) -> None:
    """Raise InputError for a `--require` that is none, before any work."""
    if require not in ("right", "covered"):
        raise InputError(f"--require {require!r}: use right or covered")


def fulfils(report: Report, require: str) -> bool:
    """Whether a report is what `--require` asks for."""
    return report.ok and (require == "right" or report.covered)


def print_result(result: Report | Diagnosis, json: bool, markdown: bool, quiet: bool = False, verbose: int = 0) -> None:
    """Print a result as JSON, as Markdown, or as text with the headline coloured in a terminal.

    quiet: nothing where it is right, and the headline alone where it is not. verbose: every comparison.
    """
    if json:
        print(result.to_json())
    elif markdown:
        print(result.to_markdown())
    else:
        said = result.table() if verbose and isinstance(result, Report) else str(result)
        headline, _, rest = as_typed(said).partition("\n")
        if not (quiet and result.ok):
            show.headline(headline, result.ok)
        if rest and not quiet:
            print(rest)
