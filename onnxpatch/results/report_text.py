"""A report as a plain-text table and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxpatch.messages.visible import markdown as escaped
from onnxpatch.messages.visible import one_line

if TYPE_CHECKING:
    from onnxpatch.results.report import Checked, Report


def _rows(report: Report) -> list[tuple[str, ...]]:
    return [_row(check) for check in report.checks]


def _row(check: Checked) -> tuple[str, ...]:
    wrong = check.first_wrong()
    finding = wrong.finding() if wrong else check.error
    error = "-" if math.isnan(check.relative) else f"{check.relative:.1e}"
    return (check.stage, check.label, check.kind, check.status, error, finding[:120])


_HEAD = ("stage", "probe", "kind", "status", "rel. error", "finding")


def _headline(report: Report) -> str:
    bad = sum(not check.ok for check in report.checks)
    verdict = "right" if report.ok else f"WRONG at {bad} of {len(report.checks)} checks"
    if report.verdict == "refused":
        return (
            f"{report.file or 'the exported graph'}: REFUSED ({report.model}; {report.exporter}, opset {report.opset})"
        )
    how = f"{report.exporter or 'given file'}, opset {report.opset}, {report.runtime or 'not run'}"
    where = " where it runs" if any(check.status == "refused" for check in report.checks) else ""
    told = f"{report.model}; {how}; largest relative error{where} {report.worst:.1e}"
    return f"{report.file or 'the exported graph'}: {verdict} ({told})"


def _tail(report: Report) -> list[str]:
    lines = [f"frozen: {f.dimension} {f.where}{_at(f.op, f.node, f.source)}" for f in report.frozen]
    for guard in (guard for guard in report.guards if guard.harmful):
        sizes = ", ".join(f"{k}={v}" for k, v in guard.sizes.items())
        lines.append(f"dropped guard: {guard.expression}, broken at {sizes}{_at('', guard.node, guard.source)}")
    if report.refused:
        lines.append(f"{report.refused} sizes that eager itself refuses were left out, such as {report.first_refusal}")
    return lines + [_acted(row) for row in report.plan] + report.notes


def _acted(row: Mapping[str, str]) -> str:
    """One line of the plan; the targets of a function patch may be dozens."""
    path = row.get("path") or "the model itself"
    if row.get("class") != "function":
        return f"swapped: {path} by {row.get('patch')}"
    first, *others = path.split(", ")
    more = f" and {len(others)} more" if others else ""
    return f"replaced while exporting: {first}{more} by {row.get('patch')}"


def _at(op: str, node: str, source: str) -> str:
    parts = [part for part in (f"{op} {node}".strip(), source) if part]
    return f" ({'; '.join(parts)})" if parts else ""


def text(report: Report) -> str:
    """Headline, one line per check, findings below."""
    rows: Sequence[tuple[str, ...]] = [_HEAD, *(tuple(map(one_line, row)) for row in _rows(report))]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([one_line(_headline(report)), *table, *map(one_line, _tail(report))])


def markdown(report: Report) -> str:
    """The same for an issue: a heading, a table, a list; versions at the end."""
    lines = [f"### {escaped(_headline(report))}", "", "| " + " | ".join(_HEAD) + " |", "|" + " --- |" * len(_HEAD)]
    lines += ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in _rows(report)]
    lines += ["", *(f"- {escaped(line)}" for line in _tail(report))]
    if report.versions:
        lines += ["", escaped(", ".join(f"{name} {version}" for name, version in report.versions.items()))]
    return "\n".join(lines).rstrip() + "\n"
