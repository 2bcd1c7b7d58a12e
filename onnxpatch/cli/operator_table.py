"""The command `onnxpatch ops`: how the installed torch's exporters write each aten operator, and from which opset."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from onnxpatch.cli import show
from onnxpatch.cli.failure import errors_in_one_line
from onnxpatch.cli.json_types import OperatorRow, Operators
from onnxpatch.cli.options import DebugOpt, JsonOpt, checked_exporter
from onnxpatch.errors import InputError
from onnxpatch.versions import versions

if TYPE_CHECKING:
    from onnxpatch.diagnosis.cures.operator_support import Operator


def ops(
    pattern: Annotated[str, typer.Argument(help="Only operators of this name, such as 'upsample*'.")] = "*",
    exporter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="dynamo, trace or script: the exporter that --missing asks about."),
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only operators that the exporter cannot write.")] = False,
    json: JsonOpt = False,
    debug: DebugOpt = False,
) -> None:
    """List aten operators: how each exporter of the installed torch writes them, and the lowest opset they need."""
    with errors_in_one_line(debug):
        from onnxpatch.diagnosis.cures.operator_support import operators

        chosen = checked_exporter(exporter)
        matching = [operator for operator in operators().values() if _matches(operator, pattern)]
        if not matching:
            raise InputError(
                f"torch has no operator like {pattern!r}: names are written as in aten::upsample_bicubic2d"
            )
        if missing:
            exporters = (chosen,) if chosen else ("dynamo", "trace")
            matching = [operator for operator in matching if not all(map(operator.supported, exporters))]
        if json:
            rows = [_json_row(operator) for operator in matching]
            show.as_json(Operators(schema=1, versions=versions(), operators=rows))
        else:
            header = ("operator", "dynamo", "trace/script", "ONNX", "from ONNX operators")
            show.table("operators", header, [_row(operator) for operator in matching])


def _matches(operator: Operator, pattern: str) -> bool:
    name = operator.name.removeprefix("aten::")
    wanted = pattern.removeprefix("aten::").replace("aten.", "")
    # With or without the overload: `add` finds `add.Tensor`.
    return fnmatchcase(name, wanted) or fnmatchcase(name.partition(".")[0], wanted)


def _json_row(operator: Operator) -> OperatorRow:
    return {
        "name": operator.name,
        "dynamo": operator.dynamo,
        "trace_opset": operator.trace,
        "onnx": dict(operator.onnx),
        "opset": operator.opset,
    }


def _row(operator: Operator) -> tuple[str, ...]:
    return (
        operator.name,
        operator.dynamo,
        f"opset {operator.trace}" if operator.trace else "none",
        f"opset {operator.opset}" if operator.opset else "",
        ", ".join(f"{name} ({since})" for name, since in operator.onnx.items()),
    )
