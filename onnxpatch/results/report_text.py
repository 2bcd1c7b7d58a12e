"""A report as text for a terminal and as Markdown for an issue: headline, a row for each check, findings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxpatch.messages.visible import markdown as escaped
from onnxpatch.messages.visible import one_line
from onnxpatch.results.attempt_result import attempt_lines
from onnxpatch.results.notebook import fragment
from onnxpatch.results.table import aligned, markdown_lines

if TYPE_CHECKING:
    from onnxpatch.results.report import Checked, Report

_HEADER = ("stage", "probe", "kind", "status", "rel. error", "finding")
_LONGEST = 120  # characters of a finding


def text(report: Report) -> str:
    """Headline, a table with a line for each check, findings and notes below."""
    rows = [[one_line(cell) for cell in _row(check)] for check in report.checks]
    return "\n".join([one_line(_headline(report)), *aligned([_HEADER, *rows]), *map(one_line, _findings(report))])


def headline(report: Report) -> str:
    """The verdict on one line."""
    return one_line(_headline(report))


def notebook(report: Report) -> str:
    """The same as `text`, as HTML for a notebook: the checks are opened by a click."""
    return fragment(
        _headline(report), _HEADER, map(_row, report.checks), _findings(report), f"{len(report.checks)} comparisons"
    )


def markdown(report: Report) -> str:
    """The same as `text`: a heading, a table, a list; the versions at the end."""
    table = markdown_lines(_HEADER, map(_row, report.checks))
    lines = [f"### {escaped(_headline(report))}", "", *table, "", *(f"- {escaped(line)}" for line in _findings(report))]
    if report.versions:
        lines += ["", escaped(", ".join(f"{name} {version}" for name, version in report.versions.items()))]
    return "\n".join(lines).rstrip() + "\n"


def _row(check: Checked) -> tuple[str, ...]:
    wrong = check.first_wrong()
    # An unsteady check has a difference too; the reason why it does not count says more.
    finding = wrong.finding() if wrong and check.status != "unsteady" else check.error
    error = "-" if math.isnan(check.relative) else f"{check.relative:.1e}"
    return (check.stage, check.label, check.kind, check.status, error, finding[:_LONGEST])


def _headline(report: Report) -> str:
    file = report.file or "the exported graph"
    if report.verdict == "refused":
        return f"{file}: REFUSED ({report.model}; {report.exporter}, opset {report.opset})"
    how = f"{report.exporter or 'given file'}, opset {report.opset}, {report.runtime or 'not run'}"
    where = " where it runs" if any(check.status == "refused" for check in report.checks) else ""
    return f"{file}: {_verdict(report)} ({report.model}; {how}; largest relative error{where} {report.worst:.1e})"


def _verdict(report: Report) -> str:
    if report.verdict == "unproven":
        sizes = ", ".join(f"{one.dimension}={one.size}" for one in report.unproven)
        return f"UNPROVEN, compared at {sizes} alone; {report.unproven[0].remedy}"
    if report.verdict == "unchecked":
        return "unchecked, nothing was compared"
    wrong = sum(not check.ok for check in report.checks)
    within = f" for {', '.join(report.bounds.values())} only" if report.bounds else ""
    return f"right{within}" if report.ok else f"WRONG at {wrong} of {len(report.checks)} checks"


def _findings(report: Report) -> list[str]:
    lines = _way(report)
    lines += [f"dimension {f.dimension} {f.where}{_place(f.op, f.node, f.source)}" for f in report.frozen]
    for guard in (guard for guard in report.guards if guard.harmful):
        sizes = ", ".join(f"{name}={size}" for name, size in guard.sizes.items())
        place = _place("", guard.node, guard.source)
        lines.append(f"dropped guard: {guard.expression} does not hold at {sizes}, and eager runs there{place}")
    lines += [one.text for one in report.right_within]
    lines += [f"unproven: dimension {one.dimension}: {one.reason}; {one.remedy}" for one in report.unproven]
    if report.refused:
        lines.append(f"{report.refused} sizes that eager itself refuses were left out, such as {report.first_refusal}")
    return lines + [_plan_line(row) for row in report.plan] + report.notes


def _way(report: Report) -> list[str]:
    """What was tried and the call that does it at once, where one attempt was not enough."""
    if len(report.attempts) < 2:
        return []
    return [*attempt_lines(report.attempts), *([f"next time: {report.call}"] if report.ok and report.call else [])]


def _plan_line(row: Mapping[str, str]) -> str:
    path = row.get("path") or "the model itself"
    if row.get("class") != "function":
        return f"swapped: {path} by {row.get('patch')}"
    first, *others = path.split(", ")  # one function patch may have dozens of targets
    more = f" and {len(others)} more" if others else ""
    return f"replaced while exporting: {first}{more} by {row.get('patch')}"


def _place(op: str, node: str, source: str) -> str:
    """` (Reshape node_view_3; model.py:31)`: the node and the user's line, as far as they are known."""
    parts = [part for part in (f"{op} {node}".strip(), source) if part]
    return f" ({'; '.join(parts)})" if parts else ""
