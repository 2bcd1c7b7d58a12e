"""The options that several commands share, and the reading of their texts.

Nothing here imports torch, and commands import what does when they run: `--help` and completion answer at once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from onnxpatch.cli.completion import patch_names
from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.settings import EXPORTERS, Exporter


def typed(ctx: typer.Context) -> str:
    """The command as it was typed, quoted for a shell."""
    return shlex.join(["onnxpatch", *(ctx.obj or ())])


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
OutputNamesOpt = Annotated[
    str | None, typer.Option("--output-names", metavar="A,B", help="Names of the file's outputs, in their order.")
]
DataOpt = Annotated[
    list[Path],
    typer.Option(
        "--data",
        metavar="FILE.npz",
        help="Compare at these inputs as well: a .npz or .safetensors file whose arrays are named like the arguments.",
    ),
]
SizesOpt = Annotated[
    list[str],
    typer.Option("--sizes", metavar="H=32,64", help="Compare at these sizes of a dimension as well, one by one."),
]
ExporterOpt = Annotated[
    str | None, typer.Option(metavar="NAME", help="dynamo, trace or script.", show_default="dynamo")
]
AnyExporterOpt = Annotated[
    str | None, typer.Option("--exporter", metavar="NAME", help="Only patches for this exporter.")
]
AutoExporterOpt = Annotated[
    str | None,
    typer.Option(
        "--exporter",
        metavar="NAME",
        help="dynamo, trace, script, or auto: trace where dynamo comes out wrong.",
        show_default="dynamo",
    ),
]
AttemptsOpt = Annotated[
    str, typer.Option(help="auto: go on with what may cure a failure, until a file is right. asked: one attempt.")
]
PreferOpt = Annotated[str | None, typer.Option(help="latency or size: go on, and take the best of the right files.")]
OpsetOpt = Annotated[int, typer.Option(min=7, help="ONNX opset of the file.")]
OperatorsOpt = Annotated[
    str, typer.Option(help="portable, or onnxruntime: operators of onnxruntime's own too, where they are faster.")
]
AnyOpsetOpt = Annotated[int | None, typer.Option("--opset", min=7, help="Only patches for this ONNX opset.")]
ImageSizeOpt = Annotated[
    str | None,
    typer.Option("--image-size", metavar="H[xW]", help="Make position tables constants for this image size."),
]
OnlyOpt = Annotated[
    list[str],
    typer.Option(
        metavar="NAME",
        help="Apply only these patches, or only to these modules; * is allowed.",
        autocompletion=patch_names,
    ),
]
ExcludeOpt = Annotated[
    list[str], typer.Option(metavar="NAME", help="Leave out these patches or modules.", autocompletion=patch_names)
]
PatchesOpt = Annotated[
    list[str],
    typer.Option("--patches", metavar="MODULE", help="Load patches of your own: package.module or script.py."),
]
BranchesOpt = Annotated[bool, typer.Option("--branches", help="Export both sides of Python branches on tensor values.")]
ToleranceOpt = Annotated[float, typer.Option(help="Largest difference, as a share of an output's largest magnitude.")]
ProbesOpt = Annotated[
    int,
    typer.Option(
        "--max-probes", min=1, help="How many inputs to compare at; a few that every check needs come on top."
    ),
]
RuntimeOpt = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="onnxruntime, openvino, tensorrt, or reference (slow; comes with onnx).",
        show_default="onnxruntime where it is installed",
    ),
]
ProvidersOpt = Annotated[
    str | None,
    typer.Option(
        "--providers",
        metavar="A,B",
        help="onnxruntime's execution providers to compare in.",
        show_default="CPUExecutionProvider",
    ),
]
MaxSecondsOpt = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        metavar="SECONDS",
        help="How long the whole may take. Without it, one run of the graph may take 120 s (inf: any time).",
        show_default="no limit",
    ),
]
MaxMemoryOpt = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="BYTES",
        help="How much memory one run of the model may take, such as 2GB; inputs that need more are not tried.",
        show_default="16 times the example, 512 MB to 2 GB",
    ),
]
BoundsOpt = Annotated[
    str | None,
    typer.Option(
        metavar="narrow|never",
        help="narrow: where no file is right at every size, one that is right at some. never: none, as --strict.",
    ),
]
StrictOpt = Annotated[
    bool, typer.Option("--strict", help="Refuse a file that is wrong at the smallest sizes only; else it is written.")
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Write the result to stdout as JSON.")]
MarkdownOpt = Annotated[bool, typer.Option("--markdown", help="Write the result to stdout as Markdown, for an issue.")]
HtmlOpt = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with all results.")]
QuietOpt = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing where it is right, and only the first line where not.")
]
VerboseOpt = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        metavar="",
        show_default=False,
        help="Log what is done; -vv: also what torch prints.",
    ),
]
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


def runtime_names(text: str | None) -> list[str] | None:
    """The runtimes in a text such as `onnxruntime,openvino`; None: the default one."""
    return names([text or ""])


def provider_names(text: str | None) -> list[str] | None:
    """The execution providers in a text such as `A,B`; None: onnxruntime's on the CPU."""
    return names([text or ""])


def sizes(texts: Sequence[str]) -> dict[str, list[int]]:
    """The sizes in texts such as `H=32,64`, by dimension."""
    found: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.partition("=")
        listed = [number.strip() for number in numbers.split(",")]
        if not name.isidentifier() or not all(number.isdecimal() and int(number) for number in listed):
            raise InputError(f"--sizes {text!r}: write a dimension and its sizes, such as H=32,64,518")
        found.setdefault(name, []).extend(map(int, listed))
    return found


def names(texts: list[str]) -> list[str] | None:
    """The names in texts such as `a,b`; None for no names, which `only` and `exclude` take for no restriction."""
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
