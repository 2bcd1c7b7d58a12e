"""A report, a plan or a diagnosis as one self-contained HTML page: nothing is fetched, nothing needs a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.exporters.artifact import write_text
from onnxpatch.html.comparison import Comparison, Progress, alone, compare
from onnxpatch.messages.visible import visible
from onnxpatch.patching.plan import Plan
from onnxpatch.results.diagnosis import Diagnosis
from onnxpatch.results.report import Report


def page(comparison: Comparison) -> str:
    """The page of an export or of a verified file, as text. Raises InputError where jinja2 is not installed."""
    from onnxpatch.html.content import context

    return _rendered("page.html.j2", context(comparison))


def plan_page(made: Plan) -> str:
    """The page of a plan, as text: module tree, code of the patches, what is left alone. Raises as `page` does."""
    from onnxpatch.html.planned import context

    return _rendered("plan.html.j2", context(made))


def diagnosis_page(model: torch.nn.Module, diagnosis: Diagnosis) -> str:
    """The page of what the doctor found in `model`, as text: each culprit with its lines and the ways out. Raises as
    `page` does."""
    from onnxpatch.html.diagnosed import context

    return _rendered("diagnosis.html.j2", context(model, diagnosis))


def write(
    file: str | os.PathLike[str],
    model: torch.nn.Module,
    report: Report,
    exported: str | os.PathLike[str] | None,
    arguments: Mapping[str, Any],
    progress: Progress | None = None,
) -> None:
    """Write the page of an export, beside the plain export (made here). arguments: those of `onnxpatch.export`."""
    write_text(file, page(compare(model, report, exported, arguments, progress)))


def write_report(
    file: str | os.PathLike[str], model: torch.nn.Module, report: Report, exported: str | os.PathLike[str]
) -> None:
    """Write the page of a file that was verified."""
    write_text(file, page(alone(model, report, exported)))


def write_plan(file: str | os.PathLike[str], made: Plan) -> None:
    """Write the page of a plan, which `onnxpatch.plan` made."""
    write_text(file, plan_page(made))


def write_diagnosis(file: str | os.PathLike[str], model: torch.nn.Module, diagnosis: Diagnosis) -> None:
    """Write the page of a diagnosis: what `onnxpatch.doctor` said of `model`."""
    write_text(file, diagnosis_page(model, diagnosis))


def _rendered(template: str, context: Mapping[str, Any]) -> str:
    try:
        import jinja2
    except ImportError:
        raise InputError("an HTML page needs jinja2: pip install 'onnxpatch[cli]'") from None
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return visible(environment.get_template(template).render(**context, code_style=_code_style()))


def _code_style() -> str:
    try:
        from pygments.formatters import HtmlFormatter
    except ImportError:
        return ""
    light, dark = (str(HtmlFormatter(style=style).get_style_defs(".code")) for style in ("friendly", "monokai"))
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
