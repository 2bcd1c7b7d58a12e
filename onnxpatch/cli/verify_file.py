"""The command `onnxpatch verify`: whether an ONNX file, from any exporter, computes what its model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.options import (
    CompareOpt,
    DataOpt,
    DebugOpt,
    DynamicOpt,
    HtmlOpt,
    ImageSizeOpt,
    InputNamesOpt,
    InputOpt,
    JsonOpt,
    MarkdownOpt,
    MaxMemoryOpt,
    MaxSecondsOpt,
    PatchesOpt,
    ProbesOpt,
    ProvidersOpt,
    QuietOpt,
    RequireOpt,
    RuntimeOpt,
    SizesOpt,
    TargetArg,
    ToleranceOpt,
    VerboseOpt,
    image_size,
    provider_names,
    runtime_names,
    sizes,
)
from onnxpatch.cli.show import RIGHT, WRONG, check_form, check_required, errors_in_one_line, fulfils, print_result


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE.onnx", help="The file, from any exporter.")],
    target: TargetArg,
    inputs: InputOpt = [],  # noqa: B006  typer takes a list default for an option that may be given several times
    dynamic: DynamicOpt = [],  # noqa: B006
    input_names: InputNamesOpt = None,
    image: ImageSizeOpt = None,
    data: DataOpt = [],  # noqa: B006
    more_sizes: SizesOpt = [],  # noqa: B006
    tolerance: ToleranceOpt = 1e-3,
    compare: CompareOpt = None,
    max_probes: ProbesOpt = 16,
    guards: Annotated[bool, typer.Option(rich_help_panel="Compare", help="Look for lost conditions on sizes.")] = True,
    runtime: RuntimeOpt = None,
    providers: ProvidersOpt = None,
    max_seconds: MaxSecondsOpt = None,
    max_memory: MaxMemoryOpt = None,
    patches: PatchesOpt = [],  # noqa: B006
    require: RequireOpt = "right",
    json: JsonOpt = False,
    markdown: MarkdownOpt = False,
    html: HtmlOpt = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = 0,
    debug: DebugOpt = False,
) -> None:
    """Compare FILE with the model of TARGET, at other sizes and on other data. Exit code 1: it is wrong or unproven.

    Without letters in --input and without --dynamic, the sizes that are dynamic in the file are varied.
    """
    with errors_in_one_line(debug, verbose, patches):
        from onnxpatch.cli.target import call_from_file, example, load
        from onnxpatch.exporters.artifact import writable

        check_form(json, markdown)
        check_required(require)
        if html:
            writable(html)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, image_size(image), input_names)
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
                sizes=sizes(more_sizes),
                providers=provider_names(providers),
                guards=guards,
                runtime=runtime_names(runtime),
                max_seconds=max_seconds,
                max_memory=max_memory,
                progress=progress,
            )
        print_result(report, json, markdown, quiet, verbose)
        if html:
            from onnxpatch.html import write_report

            write_report(html, loaded.model, report, file)
        raise typer.Exit(RIGHT if fulfils(report, require) else WRONG)
