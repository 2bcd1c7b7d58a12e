"""Naming the outputs of an exported file after the model's own structure, and writing that structure into it."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence

from onnxpatch.control_flow.capture import BranchReport
from onnxpatch.onnxfile import output_structure as output_layout
from onnxpatch.onnxfile.editing import edited


def name_outputs(file: str | os.PathLike[str], report: BranchReport, names: Sequence[str] | None = None) -> None:
    """Name a file's outputs, optional ones followed by their flag, and write the structure into its metadata.

    report: what forking did (`branches.report_of(model)`); without a structure nothing is changed. names: the user's,
    one for each output value, or one for each value and flag. Raises ValueError for names that do not fit.
    """
    if report.layout is not None:
        with edited(file) as proto:
            output_layout.write(proto, copy.deepcopy(report.layout), names or ())
