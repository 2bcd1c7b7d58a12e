"""A report with all its comparisons: as a table for a terminal, as Markdown for an issue, as HTML for a notebook."""

from __future__ import annotations

from onnxpatch.messages.quantities import counted
from onnxpatch.messages.visible import markdown as escaped
from onnxpatch.messages.visible import one_line
from onnxpatch.results.checks import Outcome
from onnxpatch.results.notebook import fragment
from onnxpatch.results.report_text import HEADER, every_finding, headline, rows
from onnxpatch.results.table import aligned, markdown_lines


def table(report: Outcome) -> str:
    """The verdict, how the file was made, a row for each comparison, and all findings."""
    cells = [[one_line(cell) for cell in row] for row in rows(report)]
    return "\n".join(
        [headline(report), _how(report), *aligned([HEADER, *cells]), *map(one_line, every_finding(report))]
    )


def uncovered(report: Outcome) -> str:
    """The verdict, and a line for each side that never ran: the text of a failure where all of them are required."""
    sides = [one_line(line) for line in every_finding(report) if line.startswith("never ran: ")]
    return "\n".join([headline(report), *(sides or ["the sides of the model's conditions were not recorded"])])


def _how(report: Outcome) -> str:
    made = f"exported by {report.exporter}" if report.exporter else "a given file"
    parts = [made, f"opset {report.opset}", report.runtime or "not run"]
    parts.append(report.compare or f"tolerance {report.tolerance:g}")
    return one_line(f"{report.model}: {', '.join(parts)}")


def markdown(report: Outcome) -> str:
    """The same as `table`: a heading, a table, a list; the versions at the end."""
    lines = [
        f"### {escaped(headline(report))}",
        "",
        escaped(_how(report)),
        "",
        *markdown_lines(HEADER, rows(report)),
        "",
    ]
    lines += [f"- {escaped(line)}" for line in every_finding(report)]
    if report.versions:
        lines += ["", escaped(", ".join(f"{name} {version}" for name, version in report.versions.items()))]
    return "\n".join(lines).rstrip() + "\n"


def notebook(report: Outcome) -> str:
    """The same as `table`, as HTML for a notebook: the comparisons are opened by a click."""
    state = "good" if report.ok else "bad"
    caption = counted(len(report.checks), "comparison")
    return fragment(headline(report), state, HEADER, rows(report), every_finding(report), caption)
