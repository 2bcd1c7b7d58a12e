"""The options that several commands share, the completion of patch names, and the reading of options' texts.

Nothing here imports torch, and commands import what does when they run: `--help` and completion answer at once. The
names of patches are read from the source of the kit.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.settings import EXPORTERS, Exporter


def patch_names(incomplete: str) -> list[str]:
    """The names of the kit's patches that begin with `incomplete`. A user's own patches are not among them."""
    return sorted(name for name in set(_named()) if name.startswith(incomplete))


def _named() -> Iterator[str]:
    installed = Path(__file__).parents[1] / "patches"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "patches"  # a checkout
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        makers = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and _makes_rows(one)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from _declared(node, makers)
            elif isinstance(node, ast.FunctionDef):
                called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
                if any(isinstance(one, ast.Name) and one.id in makers for one in called):
                    yield node.name.replace("_", "-")


def _makes_rows(function: ast.FunctionDef) -> bool:
    """Whether it declares a row by a name that it is given, as an argument or as the function that it decorates."""
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call) and one.args]
    return any(getattr(one.func, "id", "") == "op" and not isinstance(one.args[0], ast.Constant) for one in calls)


def _declared(call: ast.Call, makers: set[str]) -> Iterator[str]:
    """The name of the patch that `patch(name=...)`, `op("torchs_name", ...)` or another row declares."""
    maker = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = next((one.value for one in call.keywords if one.arg == "name"), None)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        yield given.value
    elif maker in {"op", *makers} and call.args and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value).rpartition(".")[2].replace("_", "-")


def typed(ctx: typer.Context) -> str:
    """The command as it was typed, quoted for a shell."""
    return shlex.join(["onnxpatch", *(ctx.obj or ())])


# The groups of `--help`; an option without one stands under "Options".
_INPUT, _FILE, _PATCHES, _FAILS, _COMPARE, _RESULT = (
    "Input", "File", "Patches", "Where it fails", "Compare", "Result",
)  # fmt: skip

TargetArg = Annotated[str, typer.Argument(metavar="TARGET", help="script.py:factory, or package.module:factory.")]
InputOpt = Annotated[
    list[str],
    typer.Option(
        "--input", "-i", metavar="NAME=...", rich_help_panel=_INPUT,
        help="x=float32[2,3,H,W]: letters may change, H=224 is the example's. Or x=FILE.npz:key; a .npz for all.",
    ),
]  # fmt: skip
DynamicOpt = Annotated[
    list[str],
    typer.Option(metavar="X=[B,_,H]", rich_help_panel=_INPUT, help="Axes that may change, for inputs from files."),
]
InputNamesOpt = Annotated[
    str | None,
    typer.Option("--input-names", metavar="A,B", rich_help_panel=_INPUT, help="Names of the file's inputs, in order."),
]
OutputNamesOpt = Annotated[
    str | None,
    typer.Option("--output-names", metavar="A,B", rich_help_panel=_FILE, help="Names of the outputs, in order."),
]
DataOpt = Annotated[
    list[Path],
    typer.Option("--data", metavar="FILE.npz", rich_help_panel=_COMPARE, help="Compare at these inputs as well."),
]
SizesOpt = Annotated[
    list[str],
    typer.Option("--sizes", metavar="H=32,64", rich_help_panel=_COMPARE, help="Compare at these sizes as well."),
]
ExporterOpt = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_FILE, help="dynamo, trace or script.", show_default="dynamo"),
]
AnyExporterOpt = Annotated[
    str | None, typer.Option("--exporter", metavar="NAME", help="Only patches for this exporter.")
]
AutoExporterOpt = Annotated[
    str | None,
    typer.Option(
        "--exporter", metavar="NAME", rich_help_panel=_FILE, show_default="dynamo",
        help="dynamo, trace, script, or auto.",
    ),
]  # fmt: skip
AttemptsOpt = Annotated[
    str, typer.Option(rich_help_panel=_FAILS, help="auto: try other ways; asked: one attempt.", metavar="auto|asked")
]
PreferOpt = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_FAILS, help="latency or size: the best of all right files."),
]
OpsetOpt = Annotated[int, typer.Option(min=7, metavar="N", rich_help_panel=_FILE, help="ONNX opset of the file.")]
OperatorsOpt = Annotated[str, typer.Option(metavar="NAME", rich_help_panel=_FILE, help="Or onnxruntime: its own too.")]
AnyOpsetOpt = Annotated[int | None, typer.Option("--opset", min=7, metavar="N", help="Only patches for this opset.")]
ImageSizeOpt = Annotated[
    str | None,
    typer.Option(
        "--image-size", metavar="H[xW]", rich_help_panel=_INPUT, help="Position tables as constants of this size."
    ),
]
OnlyOpt = Annotated[
    list[str],
    typer.Option(
        metavar="NAME", rich_help_panel=_PATCHES, autocompletion=patch_names,
        help="Only these patches, or only in these modules.",
    ),
]  # fmt: skip
ExcludeOpt = Annotated[
    list[str],
    typer.Option(
        metavar="NAME", rich_help_panel=_PATCHES, autocompletion=patch_names, help="Not these patches or modules."
    ),
]
PatchesOpt = Annotated[
    list[str],
    typer.Option(
        "--patches", metavar="MODULE", rich_help_panel=_PATCHES, help="Your own: package.module or script.py."
    ),
]
BranchesOpt = Annotated[
    bool, typer.Option("--branches", rich_help_panel=_FAILS, help="Export both sides of an `if` on tensor values.")
]
ToleranceOpt = Annotated[
    float, typer.Option(metavar="X", rich_help_panel=_COMPARE, help="Largest relative difference.")
]
CompareOpt = Annotated[
    str | None,
    typer.Option(
        "--compare", metavar="NAME[=X]", rich_help_panel=_COMPARE, show_default="each value",
        help="Quantized: top1, cosine or relative.",
    ),
]  # fmt: skip
ProbesOpt = Annotated[
    int, typer.Option("--max-probes", min=1, metavar="N", rich_help_panel=_COMPARE, help="Inputs to compare at.")
]
RuntimeOpt = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", rich_help_panel=_COMPARE, show_default="onnxruntime", help="Also openvino, tensorrt, reference."
    ),
]
ProvidersOpt = Annotated[
    str | None,
    typer.Option(
        "--providers", metavar="A,B", rich_help_panel=_COMPARE, help="onnxruntime's execution providers.",
        show_default="CPU",
    ),
]  # fmt: skip
MaxSecondsOpt = Annotated[
    float | None,
    typer.Option(
        "--max-seconds", metavar="SECONDS", rich_help_panel=_COMPARE, help="How long the whole may take.",
        show_default="no limit",
    ),
]  # fmt: skip
MaxMemoryOpt = Annotated[
    str | None,
    typer.Option(
        "--max-memory", metavar="BYTES", rich_help_panel=_COMPARE, show_default="0.5 to 2 GB",
        help="Of one run of the model.",
    ),
]  # fmt: skip
BoundsOpt = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_FAILS, help="narrow: a file right at some sizes; never: none."),
]
StrictOpt = Annotated[bool, typer.Option("--strict", rich_help_panel=_FAILS, help="The same as --bounds never.")]
JsonOpt = Annotated[bool, typer.Option("--json", rich_help_panel=_RESULT, help="The result as JSON, on stdout.")]
MarkdownOpt = Annotated[
    bool, typer.Option("--markdown", rich_help_panel=_RESULT, help="The result as Markdown, for an issue.")
]
HtmlOpt = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", rich_help_panel=_RESULT, help="A page with all results and the graph."),
]
RequireOpt = Annotated[
    str,
    typer.Option(
        "--require", metavar="NAME", rich_help_panel=_COMPARE,
        help="covered: 1 also where a side never ran.",
    ),
]  # fmt: skip
QuietOpt = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=_RESULT, help="Nothing where it is right, else one line.")
]
VerboseOpt = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False, rich_help_panel=_RESULT,
        help="Every comparison; -vv: what torch prints.",
    ),
]  # fmt: skip
DebugOpt = Annotated[bool, typer.Option("--debug", rich_help_panel=_RESULT, help="Show tracebacks.")]

_SIZE = re.compile(r"(\d+)(?:[x,](\d+))?")


def image_size(text: str | None) -> tuple[int, int] | None:
    """`224` or `224x336` as (height, width) in pixels."""
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]) or not int(match[2] or 1):
        raise InputError(f"--image-size {text!r}: write a size in pixels, such as 224 or 224x336")
    return int(match[1]), int(match[2] or match[1])


def listed(text: str | None) -> list[str] | None:
    """The names in a text such as `onnxruntime,openvino`; None: the default."""
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
