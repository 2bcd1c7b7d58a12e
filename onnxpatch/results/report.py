"""What a check found, as one object: text for a terminal, JSON for tools, Markdown for an issue."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

from onnxpatch.errors import VerificationError
from onnxpatch.results.checks import Outcome
from onnxpatch.results.report_forms import markdown, notebook, table
from onnxpatch.results.report_text import headline, text

SCHEMA = 1


@dataclass(frozen=True, repr=False)
class Report(Outcome):
    """The result of `export` and `verify`. `ok`, and `bool(report)`, say whether the verdict is right.

    attempts: what `export` tried, the delivered one last but for those that were compared with it; [] from `verify`.
    call: the shortest call of `export` that makes this file at once. bounds: the sizes for which the file is right, in
    words by dimension, where that is not every size. memory: bytes that PyTorch's operators took for the `example` and
    at the `peak` of any run, the `limit` of one run, and the most that the `process` has had so far. bytes: of the
    file, with weights beside it. advice: what to type where the file is wrong. untried: the sides of the model's own
    conditions that no compared input took, of a right file; sides_recorded: whether they were looked for.
    first_call: attributes that a call changes, with their lines, where a second identical call answers otherwise.
    draws: the lines, or the file's operators, that draw random numbers.
    """

    def raise_unless_right(self, hint: str = "") -> None:
        """Raises VerificationError with the first wrong output; what is unproven or unchecked passes.

        hint: what may cure a branch on tensor values.
        """
        if not self.wrong:
            return
        first = self.first_wrong()
        found = first.sentence() if first else "PyTorch returns other outputs for the same input: nothing can be proven"
        # Only where another branch made the difference: branches=True cures nothing else.
        found += hint if first and first.kind == "branch" else ""
        what = "the ONNX output differs from PyTorch"
        raise VerificationError(f"{what}: {found}\n{text(self, row=False)}", self)

    def table(self) -> str:
        """Every comparison on a line of its own, and all that was found: what `print(report)` leaves out."""
        return table(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only; `schema` counts the layout's versions."""
        # What the exporter returned is for callers in Python.
        names = [f.name for f in dataclasses.fields(self) if f.name != "program"]
        body = {name: json_value(getattr(self, name)) for name in names}
        told = {"ok": self.ok, "verdict": self.verdict, "covered": self.covered, "worst": json_value(self.worst)}
        return {"schema": SCHEMA, **told, **body}

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def to_markdown(self) -> str:
        return markdown(self)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<Report {headline(self)}>"

    def _repr_html_(self) -> str:
        return notebook(self)


def json_value(value: object) -> object:
    """The value with dicts, lists, strings, numbers, bools and None only. A dataclass with `ok` gets that key too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return fields | ({"ok": value.ok} if hasattr(value, "ok") else {})
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
