"""For your own test suite: `assert_exports(model, args, dynamic_shapes=...)`, with the report as the failure text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch

from onnxpatch.errors import ExportError, VerificationError
from onnxpatch.export import Attempts, export
from onnxpatch.results.report import Report, uncovered
from onnxpatch.settings import EXPORTERS, Exporter

__all__ = ["assert_exports"]


def assert_exports(
    model: torch.nn.Module,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    exporters: Iterable[Exporter] | Exporter = ("dynamo",),
    allow_unproven: bool = False,
    allow_bounds: bool = False,
    attempts: Attempts = "asked",
    require: Literal["right", "covered"] = "right",
    **options: Any,
) -> dict[str, Report]:
    """Assert that `model` exports to ONNX, and that the file is right at sizes and on data that the export never saw.

        assert_exports(model, (image,), dynamic_shapes=({0: "batch"},), exporters=("dynamo", "trace"))

    args, kwargs, dynamic_shapes, options: as in `onnxpatch.export` (tolerance, data, opset_version, branches, only,
        exclude ...). f= keeps the file of the last exporter; without it nothing is written.
    exporters: one or several of "dynamo", "trace", "script", "auto"; each has to be right. exporter= names one, too.
    allow_unproven: accept a dynamic dimension that was compared at the example's size only. Else that is a failure, and
        the report says which `data=` is missing.
    allow_bounds: accept a file that is wrong only at sizes far below the example's.
    attempts: "asked" makes one, so that a test notices that the first way broke; "auto" makes several, as `export`.
    require: "covered" also fails where a side of the model's own conditions that an input can take was not compared.

    Returns the reports by exporter. Raises AssertionError with the report of every exporter that failed, also where
    check=False left nothing compared; ValueError for another `require`.
    """
    # pytest leaves this frame out: the failing line is the test's own.
    __tracebackhide__ = True
    if require not in ("right", "covered"):
        raise ValueError(f"require={require!r}: use 'right' or 'covered'")
    reports: dict[str, Report] = {}
    failures = []
    for exporter in _named(options.pop("exporter", exporters)):
        try:
            asked = {"f": io.BytesIO(), "dynamic_shapes": dynamic_shapes, "exporter": exporter, **options}
            asked["attempts"] = attempts
            if not allow_bounds:
                asked.setdefault("bounds", "never")
            report = reports[exporter] = export(model, args, kwargs=kwargs, **asked)
            if not (report.ok or (allow_unproven and report.verdict == "unproven")):
                failures.append(f"{exporter}: {report}")
            elif require == "covered" and not report.covered:
                failures.append(f"{exporter}: {uncovered(report)}")
        except (ExportError, VerificationError) as error:
            failures.append(str(error) if isinstance(error, ExportError) else f"{exporter}: {error}")
    if failures:
        raise AssertionError("\n\n".join(failures))
    return reports


def _named(exporters: Iterable[Exporter] | Exporter) -> tuple[Exporter, ...]:
    wanted = (exporters,) if isinstance(exporters, str) else tuple(exporters)
    if not wanted or not {*wanted} <= {*EXPORTERS, "auto"}:
        raise ValueError(f"exporters={exporters!r}: name one or several of {', '.join(EXPORTERS)}")
    return wanted
