"""`onnxpatch ops`: which aten operators have an ONNX form here, under which exporter, from which opset on."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

import typer

from onnxpatch.cli import show
from onnxpatch.cli.failure import told_in_one_line
from onnxpatch.cli.options import DebugOpt, JsonOpt
from onnxpatch.diagnosis.cures.operator_support import Operator, operators
from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.settings import EXPORTERS
from onnxpatch.versions import versions


def ops(
    pattern: Annotated[str, typer.Argument(help="Operators whose name fits, such as 'upsample*'.")] = "*",
    exporter: Annotated[str | None, typer.Option(help="dynamo, trace or script: whose translations count.")] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only operators that --exporter cannot write.")] = False,
    json: JsonOpt = False,
    debug: DebugOpt = False,
) -> None:
    """aten operators: how each exporter of the installed torch writes them, and the lowest opset that they need."""
    with told_in_one_line(debug):
        if exporter is not None and exporter not in EXPORTERS:
            raise UnknownExporterError(f"--exporter {exporter!r} is not known: use one of {', '.join(EXPORTERS)}")
        found = [one for one in operators().values() if _fits(one, pattern)]
        if not found:
            raise InputError(
                f"torch has no operator like {pattern!r}: names are written as in aten::upsample_bicubic2d"
            )
        if missing:
            found = [one for one in found if not all(one.supported(e) for e in _asked(exporter))]
        if json:
            show.as_json({"schema": 1, "versions": versions(), "operators": [one.to_dict() for one in found]})
        else:
            show.table("operators", ("operator", "dynamo", "trace/script", "ONNX", "from ONNX operators"), _rows(found))


def _asked(exporter: str | None) -> tuple[str, ...]:
    return (exporter,) if exporter else ("dynamo", "trace")


def _fits(one: Operator, pattern: str) -> bool:
    name = one.name.removeprefix("aten::")
    wanted = pattern.removeprefix("aten::").replace("aten.", "")
    return fnmatchcase(name, wanted) or fnmatchcase(name.partition(".")[0], wanted)


def _rows(found: list[Operator]) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            one.dynamo,
            f"opset {one.trace}" if one.trace else "none",
            f"opset {one.opset}" if one.opset else "",
            ", ".join(f"{name} ({since})" for name, since in one.onnx.items()),
        )
        for one in found
    ]
