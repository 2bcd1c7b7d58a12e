"""`onnxpatch export`: patch, export, prove, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.example import example
from onnxpatch.cli.failure import RIGHT, WRONG, code_of, told_in_one_line
from onnxpatch.cli.options import (
    BranchesOpt,
    DebugOpt,
    DynamicOpt,
    ExcludeOpt,
    ExporterOpt,
    HtmlOpt,
    ImageSizeOpt,
    InputNamesOpt,
    InputOpt,
    JsonOpt,
    MarkdownOpt,
    MaxSecondsOpt,
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
from onnxpatch.errors import OnnxpatchError, UnknownExporterError, VerificationError
from onnxpatch.exporters.artifact import writable
from onnxpatch.results.report import EXPORTING, Checked
from onnxpatch.settings import EXPORTERS
from onnxpatch.versions import versions


def export(
    target: TargetArg,
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write.")] = Path("model.onnx"),
    inputs: InputOpt = [],  # noqa: B006  typer's way of saying: may be given several times
    dynamic: DynamicOpt = [],  # noqa: B006
    input_names: InputNamesOpt = None,
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
    max_seconds: MaxSecondsOpt = None,
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
        call = example(loaded, inputs, dynamic, pixels, input_names)
        arguments = {**vars(call), **which(exporter), "opset_version": opset, "tolerance": tolerance, **options}
        with show.progress("export") as progress:
            report, refusal = _run(loaded.model, file, arguments, check, max_probes, runtime, max_seconds, progress)
        if refusal is None or json or markdown:
            hand_over(report, json, markdown)
        if html:
            from onnxpatch.html import write

            with show.progress("page") as progress:
                write(html, loaded.model, report, file if report.ok else None, arguments, progress)
        if refusal is not None:
            raise refusal
        raise typer.Exit(RIGHT if report.ok else WRONG)


def which(exporter: str | None) -> dict[str, bool]:
    """The keywords of torch.onnx.export that choose the exporter."""
    if exporter is not None and exporter not in EXPORTERS:
        raise UnknownExporterError(f"--exporter {exporter!r} is not known: use one of {', '.join(EXPORTERS)}")
    return {"dynamo": exporter in (None, "dynamo"), "script": exporter == "script"}


def _run(
    model: Any, file: Path, arguments: dict[str, Any], *rest: Any
) -> tuple[onnxpatch.Report, OnnxpatchError | None]:
    """The report, and the refusal where there is no graph to report of: the report then says no more than that."""
    named = ("check", "max_probes", "runtime", "max_seconds", "progress")
    checking: dict[str, Any] = dict(zip(named, rest, strict=True))
    try:
        return onnxpatch.export(model, f=file, **arguments, **checking), None
    except VerificationError as error:
        if not isinstance(error.report, onnxpatch.Report):
            raise
        return error.report, None
    except OnnxpatchError as error:
        if code_of(error) != WRONG:
            raise
        return _refused(model, file, arguments, error), error


def _refused(model: Any, file: Path, arguments: dict[str, Any], error: OnnxpatchError) -> onnxpatch.Report:
    exporter = "dynamo" if arguments["dynamo"] else "script" if arguments["script"] else "trace"
    told = Checked(EXPORTING, "example", "example", {}, error=str(error), status="refused")
    asked = {"opset": arguments["opset_version"], "tolerance": arguments["tolerance"]}
    return onnxpatch.Report(str(file), type(model).__name__, exporter, **asked, checks=[told], versions=versions())
