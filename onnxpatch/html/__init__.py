"""A report, a plan or a diagnosis as one self-contained HTML file, which loads nothing from elsewhere.

May import everything but `cli`. A page is a dict of plain values, made by `content`, `planned` or `diagnosed`, in a
template of this folder. Start reading at `page` below. Needs jinja2; code is coloured where pygments is installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from onnxpatch.errors import InputError
from onnxpatch.exporters.artifact import write_text
from onnxpatch.html.comparison import Comparison, alone, compared_with_plain
from onnxpatch.messages.text import Progress, plural, visible, without_folders
from onnxpatch.patching.plan import Plan
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.results.report import Report


def page(comparison: Comparison) -> str:
    """The page of an export or of a verified file, as HTML text. Raises InputError where jinja2 is not installed."""
    from onnxpatch.html.content import context

    return _rendered("page.html.j2", context(comparison))


def plan_page(plan: Plan) -> str:
    """The page of a plan, as HTML text: module tree, code of the patches, what is left alone.

    Raises InputError where jinja2 is not installed.
    """
    from onnxpatch.html.planned import plan_context

    return _rendered("plan.html.j2", plan_context(plan))


def diagnosis_page(model: torch.nn.Module, diagnosis: Diagnosis, command: str = "") -> str:
    """The page of a diagnosis of `model`, as HTML text: each culprit with its lines and the proposals.

    command: an `onnxpatch export` of the model, where the cures are to be shown as commands. Raises InputError where
    jinja2 is not installed.
    """
    from onnxpatch.html.diagnosed import diagnosis_context

    return _rendered("diagnosis.html.j2", diagnosis_context(model, diagnosis, command))


def write(
    file: str | os.PathLike[str],
    model: torch.nn.Module,
    report: Report,
    exported: str | os.PathLike[str] | None,
    arguments: Mapping[str, object],
    progress: Progress | None = None,
    command: str = "",
) -> None:
    """Write the page of an export, which compares it with a plain torch.onnx.export that is made for it.

    exported: the ONNX file, None where none was left. arguments: the keywords that `onnxpatch.export` was called with.
    progress: called with (stage, done, total). command: that made the file, if it was a command.
    """
    write_text(file, page(compared_with_plain(model, report, exported, arguments, progress, command)))


def write_report(
    file: str | os.PathLike[str], model: torch.nn.Module, report: Report, exported: str | os.PathLike[str]
) -> None:
    """Write the page of an ONNX file that `onnxpatch.verify` checked."""
    write_text(file, page(alone(model, report, exported)))


def write_plan(file: str | os.PathLike[str], plan: Plan) -> None:
    """Write the page of a plan by `onnxpatch.plan`."""
    write_text(file, plan_page(plan))


def write_diagnosis(
    file: str | os.PathLike[str], model: torch.nn.Module, diagnosis: Diagnosis, command: str = ""
) -> None:
    """Write the page of a diagnosis of `model` by `onnxpatch.doctor`.

    command: an `onnxpatch export` of the model, where cures are to be shown as commands.
    """
    write_text(file, diagnosis_page(model, diagnosis, command))


def _rendered(template: str, context: Mapping[str, object]) -> str:
    try:
        import jinja2
    except ImportError:
        raise InputError("an HTML page needs jinja2: pip install 'onnxpatch[cli]'") from None
    # autoescape: names and code of a model are text in the page, never markup.
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_portable
    )
    # Last of all: names from models and files are in many places of a page, and autoescape keeps control characters.
    return visible(environment.get_template(template).render(**context, counted=plural, code_style=_code_style()))


def _portable(value: object) -> object:
    """Text for a page that is sent on: whoever reads it has other folders. Markup, which is HTML, stays as it is."""
    return without_folders(value) if type(value) is str else value


_STYLES = ("xcode", "monokai")  # light and dark; their colours stand out enough from the page for weak eyes


def _code_style() -> str:
    """The CSS for coloured code, light and dark; "" where pygments is not installed."""
    try:
        from pygments.formatters import HtmlFormatter
    except ImportError:
        return ""
    light, dark = (str(HtmlFormatter(style=style, nobackground=True).get_style_defs(".code")) for style in _STYLES)
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
