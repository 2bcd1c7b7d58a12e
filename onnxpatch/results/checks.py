"""The dataclasses of a report: each comparison, each size that is not right, each side that never ran, each attempt.

`Outcome` has all of them; `Report` adds the texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from onnxpatch.messages.text import clipped, in_seconds

VERDICTS = ("right", "wrong", "unproven", "unchecked", "refused")
EXPORTING = "export"  # the stage of a check that tells of a refused export


@dataclass(frozen=True)
class OutputParity:
    """One output at one probe, in eager and in the file.

    shape, dtype: eager's. found_shape, found_dtype: the file's.
    absolute: the largest difference. relative: the same over eager's largest finite magnitude. cosine: of the two, as
        vectors. top1: the share of rows, along the last axis, whose largest value is where eager has it (of whole
        numbers and flags: the equal ones); NaN without `compare=`.
    first_index, expected, found: the first element that differs by more than the tolerance, in eager and in the file.
    reason: what is wrong; "" where it is right.
    """

    name: str
    shape: tuple[int, ...]
    found_shape: tuple[int, ...]
    dtype: str
    found_dtype: str
    absolute: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    top1: float = math.nan
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
    """One probe in one runtime.

    stage: the runtime's name, or "export" for an export that was refused. label, kind: what the probe is, such as
        "B=3" and "size". sizes: of the dynamic dimensions. outputs: one each; () where nothing ran.
    status: "right"; "wrong"; "refused" (the file does not run, eager does); "unsteady" (no verdict: eager's own output
        moves as far when its inputs move by one rounding).
    error: why the file did not run, or has no verdict; if it is right, under which reading of eager it is. node: where.
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
        errors = [o.relative for o in self.outputs if not math.isnan(o.relative)]
        return max(errors, default=math.nan if self.error or not self.ok else 0.0)

    def first_wrong(self) -> OutputParity | None:
        return next((o for o in self.outputs if not o.ok), None)

    def _place(self) -> str:
        """`at T=3`; data at the example's sizes: `on other data (zeros)`."""
        if self.kind not in ("data", "branch") or "=" in self.label:
            return f"at {self.label}"
        return f"on {self.label}" if "other data" in self.label else f"on other data ({self.label})"

    def sentence(self) -> str:
        """One line: where, what, how far off."""
        wrong = self.first_wrong()
        where = f"{self.stage} {self._place()}"
        if wrong is None:
            return f"{where}: {self.error or self.status}"
        place = ""
        if wrong.first_index is not None:
            place = f", first at {list(wrong.first_index)}: {wrong.found!r}, eager has {wrong.expected!r}"
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
    input at which it was asked. span: the first and last line of the function. marks: its lines that ask, each with
    "both" (both sides ran), "one", or "never" (another side could run, and did not).
    """

    place: str
    question: str
    side: str
    nearest: str
    span: tuple[int, int] = (0, 0)
    marks: tuple[tuple[int, str], ...] = ()

    def sentence(self) -> str:
        """`model.py:344, the side where w.abs().max() > 1.5`."""
        line = self.place.rpartition(" in ")[0]
        return f"{PurePath(line).name}, the side where {self.side}"


@dataclass(frozen=True, repr=False)
class Outcome:
    """The fields of a `Report`, which says what they are, and the verdict that follows from them."""

    file: str
    model: str
    exporter: str | None = None
    opset: int | None = None
    runtime: str = ""
    tolerance: float = 1e-3
    compare: str = ""
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
    wrong_at_zero: list[str] = field(default_factory=list)
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
        """One of "right", "wrong", "unproven", "unchecked" and "refused".

        unproven: a dynamic dimension was compared at the example's size alone. unchecked: check=False, nothing was
        compared. refused: the exporter made no file.
        """
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


_LONGEST = 100  # characters of an error in a line of text


@dataclass(frozen=True)
class AttemptResult:
    """One attempt of `export`, and what came of it.

    name: in words, such as "without 'my-patch', branches=True". exporter, opset, plain (no patch at all), exclude (the
    patches left out, in addition to the caller's `exclude`), branches: how it was made.
    verdict: right, wrong, refused or unproven. error: why it failed, one line. module: the path of the module in which
    it failed. line: the line of the model's own code, file:line. stand_in: the patch whose stand-in raised the error.
    seconds: its export and its comparison. delivered: whether its file is the one that was kept.
    milliseconds, bytes: of its file, where attempts were compared by `prefer`; else None.
    """

    name: str
    exporter: str
    opset: int
    plain: bool = False
    exclude: tuple[str, ...] = ()
    branches: bool = False
    verdict: str = "right"
    error: str = ""
    module: str = ""
    line: str = ""
    stand_in: str = ""
    seconds: float = 0.0
    delivered: bool = False
    milliseconds: float | None = None
    bytes: int | None = None


def attempt_lines(attempts: Sequence[AttemptResult], said: str = "") -> list[str]:
    """`attempt 2, branches=True: refused after 2.1 s: …`, a line for each. An error said before is not said again.

    said: what stands above them.
    """
    errors = [one.error for one in attempts]
    again = [
        replace(one, error="as above" if one.error in said else "the same")
        if one.error and (one.error in said or one.error in errors[:i])
        else one
        for i, one in enumerate(attempts)
    ]
    return [_line(number, one) for number, one in enumerate(again, 1)]


def _line(number: int, one: AttemptResult) -> str:
    where = (f"in {one.module}" if one.module else "", one.line, one.stand_in and f"the stand-in of {one.stand_in!r}")
    place = ", ".join(filter(None, where))
    found = " ".join(filter(None, (clipped(one.error, _LONGEST), f"({place})" if place else ""))) or _measured(one)
    name, verdict = f", {one.name}" if number > 1 else "", f"{one.verdict}{', delivered' if one.delivered else ''}"
    return f"attempt {number}{name}: {verdict} after {in_seconds(one.seconds)}{f': {found}' if found else ''}"


def _measured(one: AttemptResult) -> str:
    parts = [] if one.milliseconds is None else [f"{one.milliseconds:.3g} ms"]
    parts += [] if one.bytes is None else [f"{one.bytes:,} bytes"]
    return ", ".join(parts)
