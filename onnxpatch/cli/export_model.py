"""The command `onnxpatch export`: patches a model, exports it, and verifies the file before it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.example import example
from onnxpatch.cli.failure import RIGHT, WRONG, code_of, errors_in_one_line
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
    ProvidersOpt,
    RuntimeOpt,
    TargetArg,
    ToleranceOpt,
    exporter_keywords,
    image_size,
    names,
)
from onnxpatch.cli.result import print_result
from onnxpatch.cli.target import load
from onnxpatch.errors import OnnxpatchError, VerificationError
from onnxpatch.exporters.artifact import writable
from onnxpatch.results.report import EXPORTING, Checked
from onnxpatch.versions import versions


def export(
    target: TargetArg,
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file to write.")] = Path("model.onnx"),
    inputs: InputOpt = [],  # noqa: B006  typer takes a list default for an option that may be given several times
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
    runtime: RuntimeOpt = [],  # noqa: B006
    providers: ProvidersOpt = [],  # noqa: B006
    max_seconds: MaxSecondsOpt = None,
    json: JsonOpt = False,
    markdown: MarkdownOpt = False,
    html: HtmlOpt = None,
    debug: DebugOpt = False,
) -> None:
    """Export TARGET with its patches, and compare the file with the unpatched model at other sizes and on other data.

    Exit code 1: the exporter refused the model, or the file was wrong; then no file is written.
    """
    with errors_in_one_line(debug):
        pixels = image_size(image)
        if html:
            writable(html)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, pixels, input_names)
        arguments = {**vars(call), **exporter_keywords(exporter), "opset_version": opset, "tolerance": tolerance}
        arguments |= {"image_size": pixels, "only": names(only), "exclude": names(exclude), "branches": branches}
        arguments |= {"check": check, "max_probes": max_probes, "max_seconds": max_seconds}
        arguments |= {"runtime": names(runtime), "providers": names(providers)}
        with show.progress("export") as progress:
            report, refusal = _export(loaded.model, file, {**arguments, "progress": progress})
        if refusal is None or json or markdown:
            print_result(report, json, markdown)
        if html:
            from onnxpatch.html import write

            with show.progress("page") as progress:
                write(html, loaded.model, report, file if report.ok else None, arguments, progress)
        if refusal is not None:
            raise refusal
        raise typer.Exit(RIGHT if report.ok else WRONG)


def _export(
    model: torch.nn.Module, file: Path, arguments: dict[str, Any]
) -> tuple[onnxpatch.Report, OnnxpatchError | None]:
    """The report, and the error where the export was refused: the report then has the error and nothing else."""
    try:
        return onnxpatch.export(model, f=file, **arguments), None
    except VerificationError as error:
        if not isinstance(error.report, onnxpatch.Report):
            raise
        return error.report, None
    except OnnxpatchError as error:
        if code_of(error) != WRONG:
            raise
        return _refused_report(model, file, arguments, error), error


def _refused_report(
    model: torch.nn.Module, file: Path, arguments: dict[str, Any], error: OnnxpatchError
) -> onnxpatch.Report:
    return onnxpatch.Report(
        str(file),
        type(model).__name__,
        "dynamo" if arguments["dynamo"] else "script" if arguments["script"] else "trace",
        opset=arguments["opset_version"],
        tolerance=arguments["tolerance"],
        checks=[Checked(EXPORTING, "example", "example", {}, error=str(error), status="refused")],
        versions=versions(),
    )
