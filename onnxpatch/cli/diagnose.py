"""The command `onnxpatch doctor`: why a model does not export, or exports wrong, and what would help."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.failure import RIGHT, WRONG, errors_in_one_line
from onnxpatch.cli.options import (
    DebugOpt,
    DynamicOpt,
    ExporterOpt,
    HtmlOpt,
    ImageSizeOpt,
    InputOpt,
    JsonOpt,
    MarkdownOpt,
    OpsetOpt,
    PatchesOpt,
    ProbesOpt,
    QuietOpt,
    TargetArg,
    ToleranceOpt,
    VerboseOpt,
    exporter_keywords,
    image_size,
)
from onnxpatch.cli.result import check_form, print_result


def doctor(
    target: TargetArg,
    inputs: InputOpt = [],  # noqa: B006  typer takes a list default for an option that may be given several times
    dynamic: DynamicOpt = [],  # noqa: B006
    exporter: ExporterOpt = None,
    opset: OpsetOpt = 18,
    image: ImageSizeOpt = None,
    tolerance: ToleranceOpt = 1e-3,
    max_probes: ProbesOpt = 16,
    proposals: Annotated[bool, typer.Option(rich_help_panel="Result", help="Try what could help.")] = True,
    budget: Annotated[
        float,
        typer.Option(
            "--max-seconds",
            "--budget",
            min=1,
            metavar="SECONDS",
            help="After it, no export is started.",
            rich_help_panel="Compare",
        ),
    ] = 180.0,
    patches: PatchesOpt = [],  # noqa: B006
    json: JsonOpt = False,
    markdown: MarkdownOpt = False,
    html: HtmlOpt = None,
    write_patch: Annotated[
        Path | None,
        typer.Option(
            "--write-patch", metavar="FILE.py", rich_help_panel="Result", help="Draft a patch where none cures it."
        ),
    ] = None,
    quiet: QuietOpt = False,
    verbose: VerboseOpt = 0,
    debug: DebugOpt = False,
) -> None:
    """Find the smallest part of TARGET that does not export or exports wrong, its line, and what would help.

    Exit code 1: the plain export fails or is wrong; 0: it is right at every size and input tried.
    """
    with errors_in_one_line(debug, verbose, patches):
        from onnxpatch.cli.example import example
        from onnxpatch.cli.target import load
        from onnxpatch.exporters.artifact import writable

        check_form(json, markdown)
        if html:
            writable(html)
        keywords = exporter_keywords(exporter)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, image_size(image))
        with show.progress("doctor") as progress:
            diagnosis = onnxpatch.doctor(
                loaded.model,
                call.args,
                call.kwargs,
                dynamic_shapes=call.dynamic_shapes,
                input_names=call.input_names,
                dynamo=keywords["dynamo"],
                exporter="script" if keywords["script"] else None,
                opset_version=opset,
                tolerance=tolerance,
                max_probes=max_probes,
                proposals=proposals,
                budget=budget,
                progress=progress,
            )
        print_result(diagnosis, json, markdown, quiet)
        if html:
            from onnxpatch.html import write_diagnosis

            cure = _export_command(target, inputs, dynamic, image, opset, patches)
            write_diagnosis(html, loaded.model, diagnosis, cure)
        if write_patch:
            written = onnxpatch.new_patch(diagnosis, write_patch)
            show.line(f"written: {written}; fill it in, then: onnxpatch prove {written}")
        raise typer.Exit(RIGHT if diagnosis.ok else WRONG)


def _export_command(
    target: str, inputs: list[str], dynamic: list[str], image: str | None, opset: int, patches: list[str]
) -> str:
    """The `onnxpatch export` of what was diagnosed; a cure adds its options."""
    words = ["onnxpatch", "export", target, "model.onnx"]
    words += [word for one in inputs for word in ("--input", one)]
    words += [word for one in dynamic for word in ("--dynamic", one)]
    words += ["--image-size", image] if image else []
    words += ["--opset", str(opset)] if opset != 18 else []
    words += [word for one in patches for word in ("--patches", one)]
    return shlex.join(words)
