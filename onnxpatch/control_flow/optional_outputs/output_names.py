"""Names the outputs of an exported file after the structure of the model's output, and writes that into the file."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

from onnxpatch.control_flow.branch_report import BranchReport
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.editing import edited


def name_outputs(file: str | os.PathLike[str], report: BranchReport, names: Sequence[str] | None = None) -> None:
    """Name a file's outputs, optional ones followed by their flag, and write the structure into its metadata.

    report: `control_flow.report_of(model)` after the export; without a structure the file is left as it is.
    names: the user's names, one for each output value, or one for each value and flag; shorter lists are allowed.
    Raises ValueError where the graph and the structure have different numbers of outputs.
    """
    if report.layout is not None:
        with edited(file) as proto:
            # `write` puts names into the tree that it is given; the report's must stay as it is for another export.
            output_structure.write(proto, copy.deepcopy(report.layout), names or ())
