"""What a check found, as one object: text for a terminal, JSON for tools, Markdown for an issue."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from onnxpatch.errors import VerificationError
from onnxpatch.results.attempt_result import AttemptResult
from onnxpatch.results.json_values import json_value
from onnxpatch.results.report_forms import markdown, notebook, table
from onnxpatch.results.report_text import headline, text

SCHEMA = 1
VERDICTS = ("right", "wrong", "unproven", "unchecked", "refused")
EXPORTING = "export"  # the stage of a check that tells of a refused export


@dataclass(frozen=True)
class OutputParity:
    """One output at one probe. Shapes and dtypes as eager has them and as found; errors absolute and relative.

    relative: largest absolute difference over eager's largest finite magnitude; first_index, expected, found: the first
    element that is off by more than the tolerance; reason: '' where the output is right.
    """

    name: str
    shape: tuple[int, ...]
    found_shape: tuple[int, ...]
    dtype: str
    found_dtype: str
    absolute: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    first_index: tuple[int, ...] | None = None
    expected: float | int | bool | None = None
    found: float | int | bool | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason

    def finding(self) -> str:
        """Which output, what is wrong with it, and the first element that is: `logits: relative error 0.3, …`."""
        place = f", first at {list(self.first_index)}" if self.first_index is not None else ""
        return f"{self.name}: {self.reason}{place}" if self.reason else ""


@dataclass(frozen=True)
class Checked:
    """One probe at one stage. stage: 'export', or the runtime's name; error: why it could not be run.

    status: right; wrong; refused (the graph does not run, eager does); unsteady (no verdict: eager's own output moves
    as far when its inputs move by a rounding).
    """

    stage: str
    label: str
    kind: str
    sizes: dict[str, int]
    outputs: tuple[OutputParity, ...] = ()
    error: str = ""
    status: str = "right"
    node: str = ""

    @property
    def ok(self) -> bool:
        return self.status in ("right", "unsteady")

    @property
    def relative(self) -> float:
        """The largest relative error of any output; NaN where nothing could be compared."""
        errors = [o.relative for o in self.outputs if not (math.isnan(o.relative))]
        return max(errors, default=math.nan if self.error or not self.ok else 0.0)

    def first_wrong(self) -> OutputParity | None:
        return next((o for o in self.outputs if not o.ok), None)

    def sentence(self) -> str:
        """One line: where, what, how far off."""
        wrong = self.first_wrong()
        where = f"{self.stage} at {self.label}"
        if wrong is None:
            return f"{where}: {self.error or self.status}"
        place = ""
        if wrong.first_index is not None:
            place = f", first at {list(wrong.first_index)}: {wrong.found!r} for {wrong.expected!r}"
        return f"{where}: output {wrong.name!r}: {wrong.reason}{place}"


@dataclass(frozen=True)
class Frozen:
    """A size declared dynamic that the file, or one of its nodes, keeps at the example's. source: the Python line."""

    dimension: str
    where: str
    node: str = ""
    op: str = ""
    source: str = ""


@dataclass(frozen=True)
class DroppedGuard:
    """A condition on sizes that the export relied on and the file does not check. sizes: where eager runs."""

    expression: str
    sizes: dict[str, int]
    harmful: bool
    source: str = ""
    node: str = ""


@dataclass(frozen=True)
class Unproven:
    """A dynamic dimension that no comparison proves: none was made at another size, or none that shows anything.

    size: the example's; reason: why there was no other; remedy: which input would prove it.
    """

    dimension: str
    size: int
    reason: str
    remedy: str


@dataclass(frozen=True)
class RightWithin:
    """Sizes of a dimension at which a wrong graph was found right, tried there. declare: what to declare instead."""

    dimension: str
    declare: str
    text: str


@dataclass(frozen=True)
class Untried:
    """A side of one of the model's own conditions that no compared input took, though one could.

    place: `file:line in function`; question: the whole condition; side: what would have to be so; nearest: the first
    input at which it was asked.
    """

    place: str
    question: str
    side: str
    nearest: str

    def sentence(self) -> str:
        """`model.py:344, the side where w.abs().max() > 1.5`."""
        line = self.place.rpartition(" in ")[0]
        return f"{PurePath(line).name}, the side where {self.side}"


@dataclass(frozen=True, repr=False)
class Report:
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

    file: str
    model: str
    exporter: str | None = None
    opset: int | None = None
    runtime: str = ""
    tolerance: float = 1e-3
    dimensions: dict[str, int] = field(default_factory=dict)
    checks: list[Checked] = field(default_factory=list)
    frozen: list[Frozen] = field(default_factory=list)
    guards: list[DroppedGuard] = field(default_factory=list)
    plan: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    first_refusal: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    attempts: list[AttemptResult] = field(default_factory=list)
    call: str = ""
    bounds: dict[str, str] = field(default_factory=dict)
    program: Any = field(default=None, repr=False, compare=False)
    unproven: list[Unproven] = field(default_factory=list)
    right_within: list[RightWithin] = field(default_factory=list)
    bytes: int = 0
    advice: str = ""
    untried: list[Untried] = field(default_factory=list)
    sides_recorded: bool = False
    first_call: list[str] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)

    @property
    def covered(self) -> bool:
        """Whether every side of the model's own conditions that an input can take was compared."""
        return self.sides_recorded and not self.untried

    @property
    def ok(self) -> bool:
        """Whether the verdict is right: compared, nothing wrong, and every dynamic dimension at another size."""
        return self.verdict == "right"

    def __bool__(self) -> bool:
        return self.ok

    @property
    def verdict(self) -> str:
        """right; wrong; unproven (a dynamic dimension was compared at the example's size alone); unchecked (nothing was
        compared, by check=False); refused (the exporter made no graph of it)."""
        if not self.checks:
            return "unchecked"
        if self.wrong:
            return "refused" if any(check.stage == EXPORTING for check in self.checks) else "wrong"
        return "unproven" if self.unproven else "right"

    @property
    def wrong(self) -> bool:
        """Whether a check found something wrong, or every one of them was without a verdict."""
        return any(not check.ok for check in self.checks) or (
            bool(self.checks) and all(check.status != "right" for check in self.checks)
        )

    @property
    def worst(self) -> float:
        """The largest relative error among the outputs that were compared; those without a verdict do not count."""
        errors = [c.relative for c in self.checks if c.status != "unsteady" and not math.isnan(c.relative)]
        return max(errors, default=0.0)

    def first_wrong(self) -> Checked | None:
        return next((check for check in self.checks if not check.ok), None)

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
