"""`export`: runs the exporter that a request names. `Exported`: the file that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxpatch._torch.one_export import one_export
from onnxpatch._torch.quiet import quiet_torch
from onnxpatch.errors import ExportError, InputError
from onnxpatch.exporters.explain import explained
from onnxpatch.exporters.request import ExportRequest


@dataclass(frozen=True)
class Exported:
    """A file that an exporter wrote at `path`.

    program: the ONNXProgram of dynamo, else None. plan: the patches that acted, a row each. notes: for the report.
    flatten: turns an output of the model into tensors in the file's order; None if these are the output's leaves.
    refusal: what to raise if the file is wrong: with branches, conditions on sizes that became no decisions.
    """

    request: ExportRequest
    path: Path
    program: Any = None
    plan: Sequence[dict[str, Any]] = ()
    notes: Sequence[str] = ()
    flatten: Callable[[Any], Sequence[Any]] | None = None
    refusal: Exception | None = None


def export(request: ExportRequest, path: Path) -> Exported:
    """Call the exporter that the request names. Raises ExportError with the reason, module and line if it fails."""
    try:
        # torch prints graphs and advice on its own debug switches: the error says what matters.
        with one_export(), quiet_torch(asked=bool(request.options.get("verbose"))):
            # onnxscript, which dynamo writes with, takes a second to load.
            if request.exporter == "dynamo":
                from onnxpatch.exporters.dynamo import export_dynamo

                return Exported(request, path, export_dynamo(request, path))
            from onnxpatch.exporters.torchscript import export_torchscript

            export_torchscript(request, path)
            return Exported(request, path)
    # What the caller gave is at fault, not the exporter: the error says so itself.
    except InputError:
        raise
    except Exception as error:
        raise ExportError(explained(error, request.model, request.exporter)) from error
