"""The options that several commands share, and the reading of their texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.settings import EXPORTERS, Exporter

TargetArg = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="package.module:factory or script.py:factory; factory() returns the model."),
]
InputOpt = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=DTYPE[SHAPE]",
        help="x=float32[2,3,H,W]: letters are dimensions that may change; H=224 sets the example size. "
        "Or x=FILE.npz:key, or a .npz/.safetensors file whose arrays are named like the arguments.",
    ),
]
DynamicOpt = Annotated[
    list[str],
    typer.Option(metavar="NAME=[B,_,H,W]", help="Axes that may change, for inputs from files or from the model."),
]
InputNamesOpt = Annotated[
    str | None,
    typer.Option("--input-names", metavar="A,B", help="Names of the file's inputs, in the order of the arguments."),
]
ExporterOpt = Annotated[str | None, typer.Option(help="dynamo, trace or script.")]
OpsetOpt = Annotated[int, typer.Option(min=7, help="ONNX opset of the file.")]
AnyOpsetOpt = Annotated[int | None, typer.Option("--opset", min=7, help="Only patches for this ONNX opset.")]
ImageSizeOpt = Annotated[
    str | None,
    typer.Option("--image-size", metavar="H[xW]", help="Make position tables constants for this image size."),
]
OnlyOpt = Annotated[
    list[str], typer.Option(metavar="NAME", help="Apply only these patches, or only to these modules; * is allowed.")
]
ExcludeOpt = Annotated[list[str], typer.Option(metavar="NAME", help="Leave out these patches or modules.")]
BranchesOpt = Annotated[bool, typer.Option("--branches", help="Export both sides of Python branches on tensor values.")]
ToleranceOpt = Annotated[float, typer.Option(help="Largest difference, as a share of an output's largest magnitude.")]
ProbesOpt = Annotated[
    int,
    typer.Option(
        "--max-probes", min=1, help="How many inputs to compare at; a few that every check needs come on top."
    ),
]
RuntimeOpt = Annotated[
    list[str],
    typer.Option(
        metavar="NAME", help="onnxruntime, openvino, tensorrt, or reference (slow; comes with onnx); a,b for both."
    ),
]
ProvidersOpt = Annotated[
    list[str],
    typer.Option(metavar="NAME", help="Execution providers of onnxruntime, such as CUDAExecutionProvider."),
]
MaxSecondsOpt = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        metavar="SECONDS",
        help="How long the whole may take. Without it, one run of the graph may take 120 s (inf: any time).",
    ),
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Write the result to stdout as JSON.")]
MarkdownOpt = Annotated[bool, typer.Option("--markdown", help="Write the result to stdout as Markdown, for an issue.")]
HtmlOpt = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with all results.")]
DebugOpt = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]

_SIZE = re.compile(r"(\d+)(?:[x,](\d+))?")


def image_size(text: str | None) -> tuple[int, int] | None:
    """`224` or `224x336` as (height, width) in pixels."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]) or not int(match[2] or 1):
        raise InputError(f"--image-size {text!r}: write a size in pixels, such as 224 or 224x336")
    return int(match[1]), int(match[2] or match[1])


def names(texts: list[str]) -> list[str] | None:
    """The names in texts such as `a,b`; None for no names, which the verbs take for their own default."""
    return [name for text in texts for name in text.split(",") if name] or None


def checked_exporter(name: str | None) -> Exporter | None:
    """The exporter of `--exporter`. Raises UnknownExporterError for a name that is not one."""
    for exporter in EXPORTERS:
        if exporter == name:
            return exporter
    if name is not None:
        raise UnknownExporterError(f"--exporter {name!r} is not known: use one of {', '.join(EXPORTERS)}")
    return None


def exporter_keywords(name: str | None) -> dict[str, bool]:
    """The keywords of torch.onnx.export for `--exporter`; without it, dynamo."""
    exporter = checked_exporter(name) or "dynamo"
    return {"dynamo": exporter == "dynamo", "script": exporter == "script"}
