"""`Report`: what `export` and `verify` found, as text for a terminal, JSON, Markdown for an issue, HTML for a notebook.

`report_text` makes the short text; the forms with every comparison are here.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from onnxpatch.errors import VerificationError
from onnxpatch.messages.text import aligned, markdown_lines, one_line, plural, safe_cells
from onnxpatch.messages.text import markdown as escaped
from onnxpatch.results.checks import Outcome
from onnxpatch.results.report_text import HEADER, every_finding, headline, rows, text

SCHEMA = 1


@dataclass(frozen=True, repr=False)
class Report(Outcome):
    """The result of `export` and `verify`: whether the file is right, and what was compared.

    `bool(report)` is `report.ok`. `print(report)` is short; `report.table()` has every comparison.

    ok, verdict, worst, covered: see these properties. checks: one `Checked` for each probe and runtime.
    file, model, exporter, opset, runtime, tolerance, compare: what was compared, and how.
    dimensions: the example's size of each dynamic dimension. refused: how many sizes the model itself refused;
        first_refusal: its error at the first of them.
    frozen: sizes declared dynamic that the file keeps at the example's. guards: conditions on sizes that the export
        relied on and the file does not check. right_within: sizes at which a wrong file is right.
    unproven: dynamic dimensions of which no other size was compared. bounds: by dimension, the sizes for which the file
        is right, where it is not right at every one. wrong_at_zero: dimensions at whose size 0 a right file is wrong.
    untried: sides of the model's own conditions that no probe took, of a right file; sides_recorded: whether they were
        looked for. first_call: attributes that a call changes, where a second identical call answers otherwise.
    plan: the patches that acted, by module path. attempts: what `export` tried; [] from `verify`. call: the shortest
        call of `export` that makes this file in one attempt. program: what torch's exporter returned.
    draws: the lines, or the file's operators, that draw random numbers. notes: other remarks, one line each.
    advice: what to type where the file is wrong.
    seconds: by step. bytes: of the file, with weights beside it. versions: of the libraries.
    memory: bytes that torch's operators took for the "example" and at the "peak" of any run, the "limit" of one run,
        and the most that the "process" has had so far; "left_out": how many inputs would have taken more.
    """

    def raise_unless_right(self, hint: str = "") -> None:
        """Raise VerificationError, with the first wrong output, if the file is wrong. Unproven or unchecked ones pass.

        hint: what may cure a branch on tensor values.
        """
        if not self.wrong:
            return
        first = self.first_wrong()
        found = first.sentence() if first else f"no comparison has a verdict: {self.checks[0].error}"
        # Only where another branch made the difference: branches=True cures nothing else.
        found += hint if first and first.kind == "branch" else ""
        what = "the ONNX output differs from PyTorch"
        raise VerificationError(f"{what}: {found}\n{text(self, row=False)}", self)

    def table(self) -> str:
        """Every comparison on a line of its own, and all that was found: what `print(report)` leaves out."""
        cells = [[one_line(cell) for cell in row] for row in rows(self)]
        findings = map(one_line, every_finding(self))
        return "\n".join([headline(self), _how(self), *aligned([HEADER, *cells]), *findings])

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists and plain values; `schema` is the version of this layout."""
        # What the exporter returned is for callers in Python.
        names = [f.name for f in dataclasses.fields(self) if f.name != "program"]
        body = {name: _json_value(getattr(self, name)) for name in names}
        told = {"ok": self.ok, "verdict": self.verdict, "covered": self.covered, "worst": _json_value(self.worst)}
        return {"schema": SCHEMA, **told, **body}

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON; NaN is null, infinities are strings."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_markdown(self) -> str:
        """The same as `table`, for an issue: a heading, a table, a list; the versions at the end."""
        lines = [f"### {escaped(headline(self))}", "", escaped(_how(self)), "", *markdown_lines(HEADER, rows(self)), ""]
        lines += [f"- {escaped(line)}" for line in every_finding(self)]
        if self.versions:
            lines += ["", escaped(", ".join(f"{name} {version}" for name, version in self.versions.items()))]
        return "\n".join(lines).rstrip() + "\n"

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<Report {headline(self)}>"

    def _repr_html_(self) -> str:
        # The same as `table`, for a notebook: the comparisons are opened by a click.
        state, caption = "good" if self.ok else "bad", plural(len(self.checks), "comparison")
        return fragment(headline(self), state, HEADER, rows(self), every_finding(self), caption)


def _json_value(value: object) -> object:
    """The value with dicts, lists, strings, numbers, bools and None only. A dataclass with `ok` gets that key too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return fields | ({"ok": value.ok} if hasattr(value, "ok") else {})
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def uncovered(report: Outcome) -> str:
    """The verdict, and a line for each side that never ran: the text of a failure where all of them are required."""
    sides = [one_line(line) for line in every_finding(report) if line.startswith("never ran: ")]
    return "\n".join([headline(report), *(sides or ["the sides of the model's conditions were not recorded"])])


def _how(report: Outcome) -> str:
    made = f"exported by {report.exporter}" if report.exporter else "a given file"
    parts = [made, f"opset {report.opset}", report.runtime or "not run"]
    parts.append(report.compare or f"tolerance {report.tolerance:g}")
    return one_line(f"{report.model}: {', '.join(parts)}")


_MARKS = {"good": ("#1a7f37", "✓"), "bad": ("#cf222e", "✗"), "": ("#57606a", "·")}  # white stands out from each


def fragment(
    headline: str,
    state: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    findings: Iterable[str],
    caption: str,
    opened: bool = False,
) -> str:
    """The HTML. state: good, bad or "". caption: what the table has, shown before it is opened. opened: at once."""
    colour, mark = _MARKS[state]
    style = f"background:{colour};color:#fff;border-radius:4px;padding:1px 7px;margin-right:6px"
    parts = [f'<p><span style="{style}">{mark}</span><strong>{escape(one_line(headline))}</strong></p>']
    listed = "".join(f"<li>{escape(one_line(finding))}</li>" for finding in findings)
    parts += [f"<ul>{listed}</ul>"] if listed else []
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in safe_cells(rows))
    if body:
        head = f"<thead><tr>{_cells('th', header)}</tr></thead>"
        table = f"<table>{head}<tbody>{body}</tbody></table>"
        # A report may have dozens of rows.
        parts.append(f"<details{' open' if opened else ''}><summary>{escape(caption)}</summary>{table}</details>")
    return "".join(parts)


def _cells(tag: str, cells: Sequence[str]) -> str:
    # Notebooks set cells right and in one line: a reason is neither.
    return "".join(f'<{tag} style="text-align:left;white-space:normal">{escape(cell)}</{tag}>' for cell in cells)
