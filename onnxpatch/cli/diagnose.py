"""`onnxpatch doctor`: why a model does not export, or exports wrong, and what would cure it."""

from __future__ import annotations

from typing import Annotated

import typer

import onnxpatch
from onnxpatch.cli import show
from onnxpatch.cli.example import example
from onnxpatch.cli.export_model import which
from onnxpatch.cli.failure import RIGHT, WRONG, told_in_one_line
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
    ProbesOpt,
    TargetArg,
    ToleranceOpt,
    image_size,
)
from onnxpatch.cli.result import hand_over
from onnxpatch.cli.target import load
from onnxpatch.exporters.artifact import writable


def doctor(
    target: TargetArg,
    inputs: InputOpt = [],  # noqa: B006  typer's way of saying: may be given several times
    dynamic: DynamicOpt = [],  # noqa: B006
    exporter: ExporterOpt = None,
    opset: OpsetOpt = 18,
    image: ImageSizeOpt = None,
    tolerance: ToleranceOpt = 1e-3,
    max_probes: ProbesOpt = 16,
    proposals: Annotated[bool, typer.Option(help="Try what could cure it.")] = True,
    budget: Annotated[float, typer.Option(min=1, help="Seconds after which no further export is begun.")] = 180.0,
    json: JsonOpt = False,
    markdown: MarkdownOpt = False,
    html: HtmlOpt = None,
    debug: DebugOpt = False,
) -> None:
    """Find the smallest part of TARGET at which the plain export fails or goes wrong, its line, and what cures it.

    Exit code 1: the plain export is refused or wrong; 0: it is right at every size and input tried.
    """
    with told_in_one_line(debug):
        if html:
            writable(html)
        chosen = which(exporter)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, image_size(image))
        with show.progress("doctor") as progress:
            found = onnxpatch.doctor(
                loaded.model,
                call.args,
                call.kwargs,
                dynamic_shapes=call.dynamic_shapes,
                input_names=call.input_names,
                dynamo=chosen["dynamo"],
                exporter="script" if chosen["script"] else None,
                opset_version=opset,
                tolerance=tolerance,
                max_probes=max_probes,
                proposals=proposals,
                budget=budget,
                progress=progress,
            )
        hand_over(found, json, markdown)
        if html:
            from onnxpatch.html import write_diagnosis

            write_diagnosis(html, loaded.model, found)
        raise typer.Exit(RIGHT if found.ok else WRONG)
