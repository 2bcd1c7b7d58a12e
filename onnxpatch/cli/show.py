"""How a command answers: tables and results on stdout, errors in one line and progress on stderr, and its exit code.

Advice of the package is printed as a shell takes it: what a message writes in Python, with the command's options.

    onnxpatch.export(model, ..., exclude='gate', branches=True)     onnxpatch export ... --exclude gate --branches
    ask for branches=True                                           ask for --branches

Colours and drawings are for terminals only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from onnxpatch import errors
from onnxpatch.errors import InputError, OnnxpatchError
from onnxpatch.messages.text import in_lines, one_line, safe_cells, spelled, visible
from onnxpatch.messages.text import table as text_table
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.results.report import Report

RIGHT, WRONG, BAD_INPUT, FAULT = 0, 1, 2, 3
# Errors in what the user typed. Every other OnnxpatchError is a result: it says something about the model.
_BAD_INPUT_ERRORS = (
    InputError,
    errors.UnknownPatchError,
    errors.UnknownExporterError,
    errors.ScriptedModelError,
    errors.DuplicatePatchError,
)


@contextlib.contextmanager
def errors_in_one_line(debug: bool, verbose: int = 0, patches: Sequence[str] = ()) -> Iterator[None]:
    """Turn an error of the block into a line or two on stderr and an exit code, and silence warnings of the libraries.

    debug: errors and warnings pass as they are. verbose: 1 logs what onnxpatch does, 2 also what torch prints.
    patches: modules with patches of the user's, loaded before the block runs.
    """
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("onnxpatch").setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    if not debug:  # one export makes dozens of warnings about torch's and onnxscript's own code
        warnings.simplefilter("ignore")
        for name in ("torch.onnx", "onnxscript", "onnx_ir"):
            logging.getLogger(name).setLevel(logging.ERROR)
    try:
        if patches:
            from onnxpatch.cli.target import load_patches

            load_patches(patches)
        with spelled(as_typed):
            yield
    except Exception as error:
        # Errors of click and typer (typer.Exit among them) are their own way to end a command.
        if debug or type(error).__module__.split(".")[0] in ("click", "typer"):
            raise
        print(in_lines(visible(as_typed(_line(error)))), file=sys.stderr)
        raise SystemExit(code_of(error)) from None


def code_of(error: BaseException) -> int:
    """The exit code for an error: 2 bad input, 1 the model is refused or the file wrong, 3 an internal error."""
    if isinstance(error, _BAD_INPUT_ERRORS):
        return BAD_INPUT
    return WRONG if isinstance(error, OnnxpatchError) else FAULT


def _line(error: BaseException) -> str:
    if isinstance(error, _BAD_INPUT_ERRORS):
        return f"onnxpatch: {' '.join(str(error).split())}"
    if isinstance(error, OnnxpatchError):
        return f"onnxpatch: {error}"
    text = " ".join(str(error).split())[:300]
    return f"onnxpatch: internal error: {type(error).__name__}: {text}; run again with --debug and report it"


# Keywords of `export` and `verify` that are options by another name; the others have their own, with dashes.
_OPTIONS = {"opset_version": "opset"}
_KEYWORDS = (
    "as_in_eager", "attempts", "bounds", "branches", "check", "exclude", "exporter", "image_size", "max_memory",
    "max_probes", "max_seconds", "only", "operators", "opset_version", "prefer", "runtime", "tolerance",
)  # fmt: skip
_VALUE = r"True|False|None|'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]|[\d.]+"
_GIVEN = re.compile(rf"\b({'|'.join(_KEYWORDS)})=({_VALUE})")
_CALL = re.compile(r"onnxpatch\.(export|verify|doctor)\(model, \.\.\.,? ?((?:[^()]|\([^()]*\))*)\)")


def as_typed(text: str) -> str:
    """The text with calls and keywords of Python in the command line's own spelling."""
    # Calls first, with their commas: what is left are single keywords in a sentence.
    calls = _CALL.sub(lambda call: f"onnxpatch {call[1]} ... {_GIVEN.sub(_option, call[2]).replace(', -', ' -')}", text)
    return re.sub(r"(onnxpatch \w+ \.\.\.) (?!-)", r"\1", _GIVEN.sub(_option, calls))


def _option(given: re.Match[str]) -> str:
    keyword, value = given[1], given[2]
    option = f"--{_OPTIONS.get(keyword, keyword).replace('_', '-')}"
    if value in ("True", "False"):
        return option if value == "True" else option.replace("--", "--no-", 1)
    names = re.findall(r"'([^']*)'|\"([^\"]*)\"", value)
    parts = [shlex.quote(one or other) for one, other in names] if names or value[0] in "('\"" else [value]
    # No patch at all, only=(), is every patch left out.
    return " ".join(f"{option} {part}" for part in parts) or "--exclude '*'"


ProgressCallback = Callable[[str, int, int], None]  # (stage, done, total)


def _is_interactive() -> bool:
    """Whether a person may be watching: stderr is a terminal, and this is not a CI job."""
    return sys.stderr.isatty() and not os.environ.get("CI")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
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


def print_headline(text: str, right: bool) -> None:
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
    if not _is_interactive():
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
        first, _, rest = as_typed(said).partition("\n")
        if not (quiet and result.ok):
            print_headline(first, result.ok)
        if rest and not quiet:
            print(rest)
