"""Naming the outputs of an exported file after the model's own structure, and writing that structure into it."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

from onnxpatch.branches.capture import Report
from onnxpatch.outputs import layout as output_layout


def name_outputs(file: str | os.PathLike[str], report: Report | None, names: Sequence[str] | None = None) -> list[str]:
    """Name a file's outputs, optional ones followed by their flag, and write the structure into its metadata.

    report: what forking did (`branches.report_of(model)`), None: nothing is changed. names: the user's, one for each
    output value, or one for each value and flag. Returns the graph's output names. External data beside the file stays
    as it is. Raises ValueError for names that do not fit.
    """
    import onnx

    proto: Any = onnx.load(os.fspath(file), load_external_data=False)
    if report is not None and report.layout is not None:
        tree = copy.deepcopy(report.layout)
        output_layout.write(proto, tree, names or ())
        onnx.save(proto, os.fspath(file))
    return [output.name for output in proto.graph.output]
