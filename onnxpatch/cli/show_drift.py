"""The command `onnxpatch drift`: whether the code that patches rely on is as it was known, in what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

import onnxpatch
from onnxpatch.cli.failure import RIGHT, WRONG, errors_in_one_line
from onnxpatch.cli.options import DebugOpt, JsonOpt


def drift(
    json: JsonOpt = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 also for private torch functions whose body changed.")
    ] = False,
    debug: DebugOpt = False,
) -> None:
    """Compare the code that patches know, and the private torch APIs, with the installed libraries.

    Exit code 1: a method that a patch knows changed or is gone, or a private API is gone.
    """
    with errors_in_one_line(debug):
        found = onnxpatch.drift()
        print(found.to_json() if json else found)
        raise typer.Exit(RIGHT if found.ok or not (strict or found.acted_upon()) else WRONG)
