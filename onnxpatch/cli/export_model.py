"""`onnxpatch export`: patch, export, prove, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.example import example
from onnxpatch.cli.failure import RIGHT, WRONG, told_in_one_line
from onnxpatch.cli.options import (
    BranchesOpt,
    DebugOpt,
    DynamicOpt,
    ExcludeOpt,
    ExporterOpt,
    HtmlOpt,
    ImageSizeOpt,
    InputOpt,
    JsonOpt,
    MarkdownOpt,
    OnlyOpt,
    OpsetOpt,
    ProbesOpt,
    RuntimeOpt,
    TargetArg,
    ToleranceOpt,
    image_size,
    names,
)
from onnxpatch.cli.result import hand_over
from onnxpatch.cli.target import load
from onnxpatch.errors import UnknownExporterError, VerificationError
from onnxpatch.outfile import writable
from onnxpatch.settings import EXPORTERS


def export(
    target: TargetArg,
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write.")] = Path("model.onnx"),
    inputs: InputOpt = [],  # noqa: B006  typer's way of saying: may be given several times
    dynamic: DynamicOpt = [],  # noqa: B006
    exporter: ExporterOpt = None,
    opset: OpsetOpt = 18,
    image: ImageSizeOpt = None,
    only: OnlyOpt = [],  # noqa: B006
    exclude: ExcludeOpt = [],  # noqa: B006
    branches: BranchesOpt = False,
    check: Annotated[bool, typer.Option(help="Compare the file with the unpatched model.")] = True,
    tolerance: ToleranceOpt = 1e-3,
    max_probes: ProbesOpt = 16,
    runtime: RuntimeOpt = None,
    json: JsonOpt = False,
    markdown: MarkdownOpt = False,
    html: HtmlOpt = None,
    debug: DebugOpt = False,
) -> None:
    """Export TARGET with its patches, and prove the file against the unpatched model at sizes never traced.

    Exit code 1: the exporter refused, or the file would have been wrong; then no file is left.
    """
    with told_in_one_line(debug):
        pixels = image_size(image)
        if html:
            writable(html)
        options = {"image_size": pixels, "only": names(only), "exclude": names(exclude), "branches": branches}
        loaded = load(target)
        call = example(loaded, inputs, dynamic, pixels)
        arguments = {**vars(call), **which(exporter), "opset_version": opset, "tolerance": tolerance, **options}
        with show.progress("export") as progress:
            report = _run(loaded.model, file, arguments, check, max_probes, runtime, progress)
        hand_over(report, json, markdown)
        if html:
            from onnxpatch.html import write

            with show.progress("page") as progress:
                write(html, loaded.model, report, file if report.ok else None, arguments, progress)
        raise typer.Exit(RIGHT if report.ok else WRONG)


def which(exporter: str | None) -> dict[str, bool]:
    """The keywords of torch.onnx.export that choose the exporter."""
    if exporter is not None and exporter not in EXPORTERS:
        raise UnknownExporterError(f"--exporter {exporter!r} is not known: use one of {', '.join(EXPORTERS)}")
    return {"dynamo": exporter in (None, "dynamo"), "script": exporter == "script"}


def _run(model: Any, file: Path, arguments: dict[str, Any], *rest: Any) -> onnxpatch.Report:
    check, max_probes, runtime, progress = rest
    checking = {"check": check, "max_probes": max_probes, "runtime": runtime, "progress": progress}
    try:
        return onnxpatch.export(model, f=file, **arguments, **checking)
    except VerificationError as error:
        if not isinstance(error.report, onnxpatch.Report):
            raise
        return error.report
