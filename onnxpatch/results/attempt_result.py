"""`AttemptResult`: one attempt of an export, for a report; and the lines of text for several attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxpatch.messages.quantities import in_seconds
from onnxpatch.results.table import clipped

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


def attempt_row(one: AttemptResult) -> tuple[str, ...]:
    """The cells of one attempt: attempt, verdict, seconds, what failed."""
    where = (f"in {one.module}" if one.module else "", one.line, one.stand_in and f"the stand-in of {one.stand_in!r}")
    place = ", ".join(part for part in where if part)
    found = " ".join(part for part in (one.error, f"({place})" if place else "") if part)
    verdict = f"{one.verdict}, delivered" if one.delivered else one.verdict
    return (one.name, verdict, f"{one.seconds:.1f}", found or _measured(one))


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
    name, verdict, _, found = attempt_row(replace(one, error=clipped(one.error, _LONGEST)))
    said = f"attempt {number}{f', {name}' if number > 1 else ''}: {verdict} after {in_seconds(one.seconds)}"
    return said + (f": {found}" if found else "")


def _measured(one: AttemptResult) -> str:
    parts = [] if one.milliseconds is None else [f"{one.milliseconds:.3g} ms"]
    parts += [] if one.bytes is None else [f"{one.bytes:,} bytes"]
    return ", ".join(parts)
