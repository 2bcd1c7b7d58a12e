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
from typing import Annotated, Any

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


def option(group: str | None, typed: str, help: str, **more: Any) -> Any:
    """An option of a command. typed: `-o --output FILE`, its names and what stands for its value."""
    words = typed.split()
    names = [word for word in words if word[0] == "-"]
    value = words[-1] if len(words) > len(names) else None
    return typer.Option(*names, metavar=value, rich_help_panel=group, help=help, **more)


TargetArg = Annotated[str, typer.Argument(metavar="TARGET", help="script.py:factory, or package.module:factory.")]
InputOpt = Annotated[
    list[str],
    option(
        _INPUT,
        "--input -i NAME=...",
        help="x=float32[2,3,H,W]: letters may change, H=224 is the example's. Or x=FILE.npz:key; a .npz for all.",
    ),
]
DynamicOpt = Annotated[
    list[str], option(_INPUT, "--dynamic X=[B,_,H]", help="Axes that may change, for inputs from files.")
]
InputNamesOpt = Annotated[str | None, option(_INPUT, "--input-names A,B", help="Names of the file's inputs, in order.")]
OutputNamesOpt = Annotated[str | None, option(_FILE, "--output-names A,B", help="Names of the outputs, in order.")]
DataOpt = Annotated[list[Path], option(_COMPARE, "--data FILE.npz", help="Compare at these inputs as well.")]
SizesOpt = Annotated[list[str], option(_COMPARE, "--sizes H=32,64", help="Compare at these sizes as well.")]
ExporterOpt = Annotated[
    str | None, option(_FILE, "--exporter NAME", help="dynamo, trace or script.", show_default="dynamo")
]
AnyExporterOpt = Annotated[str | None, option(None, "--exporter NAME", help="Only patches for this exporter.")]
AutoExporterOpt = Annotated[
    str | None, option(_FILE, "--exporter NAME", help="dynamo, trace, script, or auto.", show_default="dynamo")
]
AttemptsOpt = Annotated[str, option(_FAILS, "--attempts auto|asked", help="auto: try other ways; asked: one attempt.")]
PreferOpt = Annotated[str | None, option(_FAILS, "--prefer NAME", help="latency or size: the best of all right files.")]
OpsetOpt = Annotated[int, option(_FILE, "--opset N", help="ONNX opset of the file.", min=7)]
OperatorsOpt = Annotated[str, option(_FILE, "--operators NAME", help="Or onnxruntime: its own too.")]
AnyOpsetOpt = Annotated[int | None, option(None, "--opset N", help="Only patches for this opset.", min=7)]
ImageSizeOpt = Annotated[
    str | None, option(_INPUT, "--image-size H[xW]", help="Position tables as constants of this size.")
]
OnlyOpt = Annotated[
    list[str],
    option(_PATCHES, "--only NAME", help="Only these patches, or only in these modules.", autocompletion=patch_names),
]
ExcludeOpt = Annotated[
    list[str], option(_PATCHES, "--exclude NAME", help="Not these patches or modules.", autocompletion=patch_names)
]
PatchesOpt = Annotated[list[str], option(_PATCHES, "--patches MODULE", help="Your own: package.module or script.py.")]
BranchesOpt = Annotated[bool, option(_FAILS, "--branches", help="Export both sides of an `if` on tensor values.")]
AsInEagerOpt = Annotated[bool, option(_FAILS, "--as-in-eager", help="Tell the model's code that no export runs.")]
ToleranceOpt = Annotated[float, option(_COMPARE, "--tolerance X", help="Largest relative difference.")]
CompareOpt = Annotated[
    str | None,
    option(_COMPARE, "--compare NAME[=X]", help="Quantized: top1, cosine or relative.", show_default="each value"),
]
ProbesOpt = Annotated[int, option(_COMPARE, "--max-probes N", help="Inputs to compare at.", min=1)]
RuntimeOpt = Annotated[
    str | None,
    option(_COMPARE, "--runtime A,B", help="Also openvino, tensorrt, reference.", show_default="onnxruntime"),
]
ProvidersOpt = Annotated[
    str | None, option(_COMPARE, "--providers A,B", help="onnxruntime's execution providers.", show_default="CPU")
]
MaxSecondsOpt = Annotated[
    float | None,
    option(_COMPARE, "--max-seconds SECONDS", help="How long the whole may take.", show_default="no limit"),
]
MaxMemoryOpt = Annotated[
    str | None, option(_COMPARE, "--max-memory BYTES", help="Of one run of the model.", show_default="0.5 to 2 GB")
]
BoundsOpt = Annotated[
    str | None, option(_FAILS, "--bounds NAME", help="narrow: a file right at some sizes; never: none.")
]
StrictOpt = Annotated[bool, option(_FAILS, "--strict", help="The same as --bounds never.")]
JsonOpt = Annotated[bool, option(_RESULT, "--json", help="The result as JSON, on stdout.")]
MarkdownOpt = Annotated[bool, option(_RESULT, "--markdown", help="The result as Markdown, for an issue.")]
HtmlOpt = Annotated[Path | None, option(_RESULT, "--html FILE", help="A page with all results and the graph.")]
RequireOpt = Annotated[str, option(_COMPARE, "--require NAME", help="covered: 1 also where a side never ran.")]
QuietOpt = Annotated[bool, option(_RESULT, "--quiet -q", help="Nothing where it is right, else one line.")]
VerboseOpt = Annotated[
    int,
    option(_RESULT, "--verbose -v", help="Every comparison; -vv: what torch prints.", count=True, show_default=False),
]
DebugOpt = Annotated[bool, option(_RESULT, "--debug", help="Show tracebacks.")]

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
    found = next((known for known in EXPORTERS if known == name), None)
    if found is None and name is not None:
        raise UnknownExporterError(f"--exporter {name!r} is not known: use one of {', '.join(EXPORTERS)}")
    return found
