"""The commands that make a file and judge one: `onnxpatch export` patches a model, exports it, and verifies the file
before it is kept; `onnxpatch verify` tells whether a file, from any exporter, computes what its model computes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import onnxpatch
from onnxpatch.cli import options, show
from onnxpatch.errors import InputError, OnnxpatchError, VerificationError
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.results.checks import EXPORTING, AttemptResult, Checked

if TYPE_CHECKING:
    import torch

_FILE = Path("model.onnx")


def export_command(
    ctx: typer.Context,
    target: options.TargetArg,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.onnx", help="The file to write.", show_default=str(_FILE))
    ] = None,
    output: Annotated[Path | None, options.option("File", "-o --output FILE", help="The file to write.")] = None,
    inputs: options.InputOpt = [],  # noqa: B006  for an option that may be given several times
    dynamic: options.DynamicOpt = [],  # noqa: B006
    input_names: options.InputNamesOpt = None,
    output_names: options.OutputNamesOpt = None,
    exporter: options.AutoExporterOpt = None,
    opset: options.OpsetOpt = 18,
    operators: options.OperatorsOpt = "portable",
    image: options.ImageSizeOpt = None,
    only: options.OnlyOpt = [],  # noqa: B006
    exclude: options.ExcludeOpt = [],  # noqa: B006
    branches: options.BranchesOpt = False,
    as_in_eager: options.AsInEagerOpt = False,
    attempts: options.AttemptsOpt = "auto",
    prefer: options.PreferOpt = None,
    bounds: options.BoundsOpt = None,
    strict: options.StrictOpt = False,
    check: Annotated[bool, typer.Option(rich_help_panel="Compare", help="Whether to compare at all.")] = True,
    data: options.DataOpt = [],  # noqa: B006
    more_sizes: options.SizesOpt = [],  # noqa: B006
    tolerance: options.ToleranceOpt = 1e-3,
    max_probes: options.ProbesOpt = 16,
    runtime: options.RuntimeOpt = None,
    providers: options.ProvidersOpt = None,
    max_seconds: options.MaxSecondsOpt = None,
    max_memory: options.MaxMemoryOpt = None,
    patches: options.PatchesOpt = [],  # noqa: B006
    require: options.RequireOpt = "right",
    json: options.JsonOpt = False,
    markdown: options.MarkdownOpt = False,
    html: options.HtmlOpt = None,
    quiet: options.QuietOpt = False,
    verbose: options.VerboseOpt = 0,
    debug: options.DebugOpt = False,
) -> None:
    """Export TARGET with its patches, and compare it with PyTorch at other sizes.

    Exit code 1: no file is right, or a dimension was compared at one size only.
    """
    with show.errors_in_one_line(debug, verbose, patches):
        from onnxpatch.cli.target import call_from_file, example, load
        from onnxpatch.exporters.artifact import target_of

        show.check_form(json, markdown)
        show.check_required(require)
        allowed, file = _allowed_bounds(strict, bounds), _one_file(file, output)
        pixels = options.image_size(image)
        if html:
            target_of(html)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, pixels, input_names)
        arguments = {**vars(call), "exporter": exporter, "opset_version": opset, "tolerance": tolerance}
        arguments |= {"only": options.names(only), "exclude": options.names(exclude), "branches": branches}
        outputs = options.listed(output_names) or call.output_names
        arguments |= {"operators": operators, "output_names": outputs, "sizes": options.sizes(more_sizes)}
        arguments |= {"data": [call_from_file(loaded.model, one) for one in data]}
        arguments |= {"providers": options.listed(providers), "runtime": options.listed(runtime)}
        arguments |= {"attempts": attempts, "prefer": prefer, "bounds": allowed, "check": check}
        arguments |= {
            "as_in_eager": as_in_eager,
            "image_size": pixels,
            "max_probes": max_probes,
            "max_seconds": max_seconds,
            "max_memory": max_memory,
        }
        with show.progress("export") as progress:
            report, refusal = _export(loaded.model, file, {**arguments, "progress": False if quiet else progress})
        # A refusal is printed once: as a result where a program reads it, else as the error below.
        if refusal is None or json or markdown:
            show.print_result(report, json, markdown, quiet, verbose)
        if html:
            _write_page(html, loaded.model, report, file, arguments, options.typed(ctx))
        if refusal is not None:
            raise refusal
        raise typer.Exit(show.RIGHT if not check or show.fulfils(report, require) else show.WRONG)


def _write_page(
    page: Path, model: torch.nn.Module, report: onnxpatch.Report, file: Path, arguments: dict[str, Any], said: str
) -> None:
    from onnxpatch.html import write

    report = replace(report, advice=show.as_typed(report.advice))
    with show.progress("page") as progress:
        # A file that came out wrong was not written: what lies there, if anything, is of an earlier export.
        write(page, model, report, None if report.wrong else file, arguments, progress, said)


def _allowed_bounds(strict: bool, bounds: str | None) -> str | None:
    if strict and bounds == "narrow":
        raise InputError("--strict refuses a file with bounds, --bounds narrow asks for one: give one of them")
    return "never" if strict else bounds


def _one_file(file: Path | None, output: Path | None) -> Path:
    if file is not None and output is not None and file != output:
        raise InputError(f"two files to write, {file} and -o {output}: give one of them")
    return file or output or _FILE


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
        # Bad input says nothing about the model, so there is no result to print.
        if show.code_of(error) != show.WRONG:
            raise
        return _refused_report(model, file, arguments, error), error


def _refused_report(
    model: torch.nn.Module, file: Path, arguments: dict[str, Any], error: OnnxpatchError
) -> onnxpatch.Report:
    from onnxpatch.exporters.request import requested_exporters

    return onnxpatch.Report(
        str(file),
        type(model).__name__,
        requested_exporters(model, arguments["exporter"])[0],
        opset=arguments["opset_version"],
        tolerance=arguments["tolerance"],
        checks=[Checked(EXPORTING, "example", "example", {}, error=error.found or str(error), status="refused")],
        advice=error.advice,
        versions=versions(),
        attempts=[one for one in error.attempts if isinstance(one, AttemptResult)],
    )


def verify_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file, from any exporter.")],
    target: options.TargetArg,
    inputs: options.InputOpt = [],  # noqa: B006  for an option that may be given several times
    dynamic: options.DynamicOpt = [],  # noqa: B006
    input_names: options.InputNamesOpt = None,
    image: options.ImageSizeOpt = None,
    data: options.DataOpt = [],  # noqa: B006
    more_sizes: options.SizesOpt = [],  # noqa: B006
    tolerance: options.ToleranceOpt = 1e-3,
    compare: options.CompareOpt = None,
    max_probes: options.ProbesOpt = 16,
    guards: Annotated[bool, typer.Option(rich_help_panel="Compare", help="Look for lost conditions on sizes.")] = True,
    runtime: options.RuntimeOpt = None,
    providers: options.ProvidersOpt = None,
    max_seconds: options.MaxSecondsOpt = None,
    max_memory: options.MaxMemoryOpt = None,
    patches: options.PatchesOpt = [],  # noqa: B006
    require: options.RequireOpt = "right",
    json: options.JsonOpt = False,
    markdown: options.MarkdownOpt = False,
    html: options.HtmlOpt = None,
    quiet: options.QuietOpt = False,
    verbose: options.VerboseOpt = 0,
    debug: options.DebugOpt = False,
) -> None:
    """Compare FILE with the model of TARGET, at other sizes and on other data. Exit code 1: it is wrong or unproven.

    Without letters in --input and without --dynamic, the sizes that are dynamic in the file are varied.
    """
    with show.errors_in_one_line(debug, verbose, patches):
        from onnxpatch.cli.target import call_from_file, example, load
        from onnxpatch.exporters.artifact import target_of

        show.check_form(json, markdown)
        show.check_required(require)
        if html:
            target_of(html)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, options.image_size(image), input_names)
        with show.progress("verify") as progress:
            report = onnxpatch.verify(
                file,
                loaded.model,
                call.args,
                call.kwargs,
                dynamic_shapes=call.dynamic_shapes,
                input_names=call.input_names,
                tolerance=tolerance,
                compare=compare,
                max_probes=max_probes,
                data=[call_from_file(loaded.model, one) for one in data],
                sizes=options.sizes(more_sizes),
                providers=options.listed(providers),
                guards=guards,
                runtime=options.listed(runtime),
                max_seconds=max_seconds,
                max_memory=max_memory,
                progress=progress,
            )
        show.print_result(report, json, markdown, quiet, verbose)
        if html:
            from onnxpatch.html import write_report

            write_report(html, loaded.model, report, file)
        raise typer.Exit(show.RIGHT if show.fulfils(report, require) else show.WRONG)
