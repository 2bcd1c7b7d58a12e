"""A report as text for a terminal: three lines where it is right, eight at most where it is not.

    deep.onnx: right at 7 of 7 (B = 1, 3, 4, 5, 7), error 3.8e-07, 42 s, 194 MB
    replaced while exporting: torch.nn.functional.interpolate by interpolate

`rows` has a line for each comparison; `every_finding` all that was found, for Markdown and pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxpatch.messages.text import WIDTH, in_bytes, in_seconds, one_line, plural, relative
from onnxpatch.results.checks import Checked, Outcome, attempt_lines
from onnxpatch.results.quantized_distance import distances

HEADER = ("stage", "probe", "kind", "status", "rel. error", "finding")
_LONGEST = 120  # characters of a finding in a row
_ROOM = 72  # characters for the sizes in the first line
_MOST_SIZES = 6  # of one dimension in the first line
_MOST_OF_RIGHT, _MOST_LINES, _MOST_ATTEMPTS = 3, 8, 3
STATUS = {"refused": "does not run", "unsteady": "no verdict"}


def text(report: Outcome, row: bool = True) -> str:
    """The verdict, and what a user has to know. row: also the first comparison that is wrong."""
    first = [_headline(report), *_fitting("", _distances(report))]
    if report.ok or report.verdict == "unchecked":
        lines = [*first, *_right(report)][:_MOST_OF_RIGHT]
    else:
        lines = [*first, *_wrong(report, row, _MOST_LINES - len(first))]
    return "\n".join(map(shown, lines))


def headline(report: Outcome) -> str:
    """The verdict on one line."""
    return shown(_headline(report))


def shown(line: str) -> str:
    """One line as a terminal shows it: paths relative, control characters spelled out, cut to its width."""
    return _cut(one_line(relative(line)), WIDTH)


def _cut(line: str, width: int) -> str:
    """At most `width` characters, ended after a word where one ends in the last third."""
    if len(line) <= width:
        return line
    kept = line[: width - 1]
    end = kept.rfind(" ", 2 * width // 3)
    return (kept if end < 0 else kept[:end].rstrip(" ,;:(")) + "…"


def rows(report: Outcome) -> list[tuple[str, ...]]:
    """The cells of each comparison, under `HEADER`."""
    return [_row(check) for check in report.checks]


def _row(check: Checked) -> tuple[str, ...]:
    wrong = check.first_wrong()
    # Where eager decides nothing there is a difference too; the reason why it does not count says more.
    finding = wrong.finding() if wrong and check.status != "unsteady" else check.error
    error = "-" if math.isnan(check.relative) else f"{check.relative:.1e}"
    status = check.status if check.stage == "export" else STATUS.get(check.status, check.status)
    return (check.stage, check.label, check.kind, status, error, relative(finding)[:_LONGEST])


# ------------------------------------------------------------------ the first line
def _headline(report: Outcome) -> str:
    file = report.file or "the exported graph"
    if report.verdict == "refused":
        return f"{file}: REFUSED, {report.exporter} cannot export {report.model} (opset {report.opset})"
    if report.verdict == "unchecked":
        return ", ".join([f"{file}: unchecked, nothing was compared", *_cost(report)])
    right, runs = sum(check.status == "right" for check in report.checks), len(report.checks)
    if report.verdict == "unproven":
        sizes = ", ".join(f"{one.dimension} = {one.size}" for one in report.unproven)
        return f"{file}: UNPROVEN, right at {right} of {runs}, and compared at {sizes} alone"
    if not report.ok:
        return f"{file}: {_how_wrong(report)}"
    if report.first_call:
        kept = ", ".join(report.first_call)
        return f"{file}: right for the first call only{_numbers(report)}; later calls read what it changes: {kept}"
    if report.untried:
        said = f"{file}: {_where_tried(report)}"
        whole = f"{said}: {_takes_it(report)}"
        return whole if len(one_line(relative(whole))) <= WIDTH else said
    return f"{file}: {_good(report)}{_numbers(report)}"


def _good(report: Outcome) -> str:
    return f"close ({report.compare})" if report.compare else "right"


def _how_wrong(report: Outcome) -> str:
    wrong = sum(not check.ok for check in report.checks)
    # Outputs of another shape have no error, nor has a graph that does not run.
    compared = any(one.relative > 0 for one in report.checks)
    stopped = any(check.status == "refused" for check in report.checks)
    error = f", error {report.worst:.1e}{' where it runs' if stopped else ''}" if compared else ""
    return f"{'FAR' if report.compare else 'WRONG'} at {wrong} of {len(report.checks)} ({report.model}){error}"


def _where_tried(report: Outcome) -> str:
    """The verdict where sides of the model's own conditions were never run."""
    first, more = report.untried[0], len(report.untried) - 1
    within = _within(report)
    others = f", and {more} more" if more else ""
    tried = f"{_good(report)}{within} where tried ({plural(len(report.checks), 'check')})"
    return f"{tried}; never ran: {first.sentence()}{others}"


def _within(report: Outcome) -> str:
    """The sizes for which the file is right, where that is not every one."""
    of_none = [f"{name} >= 1 (wrong at 0)" for name in report.wrong_at_zero]
    said = ", ".join([*report.bounds.values(), *of_none])
    return f" for {said} only," if said else ""


def _takes_it(report: Outcome) -> str:
    return "pass data= that reaches that side" + ("" if "branches=True" in report.call else ", or branches=True")


def _numbers(report: Outcome) -> str:
    right, runs = sum(check.status == "right" for check in report.checks), len(report.checks)
    within = _within(report)
    undecided = f", no verdict at {runs - right}" if right < runs else ""
    undecided += ", draws random numbers" if report.draws else ""
    sizes = _sizes(report)
    said = f"{within} at {right} of {runs}{f' ({sizes})' if sizes else ''}{undecided}"
    return ", ".join([said, f"error {report.worst:.1e}", *_cost(report)])


def _cost(report: Outcome) -> list[str]:
    seconds = sum(report.seconds.values())
    return [*([in_seconds(seconds)] if seconds else []), *([in_bytes(report.bytes)] if report.bytes else [])]


def _sizes(report: Outcome) -> str:
    """`B = 1, 3, 4; H = 32, 64`: the sizes at which it was found right, or how many where they take much room."""
    found = {
        name: sorted({check.sizes[name] for check in report.checks if check.status == "right" and name in check.sizes})
        for name in report.dimensions
    }
    listed = "; ".join(f"{name} = {_listed(sizes)}" for name, sizes in found.items())
    if len(listed) <= _ROOM:
        return listed
    return ", ".join(f"{plural(len(sizes), 'size')} of {name}" for name, sizes in found.items())


def _listed(sizes: Sequence[int]) -> str:
    if len(sizes) <= _MOST_SIZES:
        return ", ".join(map(str, sizes))
    return f"{', '.join(map(str, sizes[: _MOST_SIZES - 1]))}, … {sizes[-1]}"


# ------------------------------------------------------------------ what follows
def _right(report: Outcome) -> list[str]:
    if report.untried and report.first_call:
        return [_where_tried(report), f"next: {_takes_it(report)}"]
    if report.untried:  # what the first line has no room for
        advice = [] if _headline(report).endswith(_takes_it(report)) else [f"next: {_takes_it(report)}"]
        rest = [*advice, *_way(report), *_fitting("note: ", report.notes)]
        return [f"{_good(report)}{_numbers(report)}", *rest[:1]]
    by = _fitting("replaced while exporting: ", replaced(report))
    way, notes = _way(report), _fitting("note: ", [*_undecided(report), *report.notes])
    if report.first_call:
        kept = ", ".join(one.partition(" (")[0] for one in report.first_call)
        step = f"next: make {kept} an input and an output of forward (docs/how-to/stateful.md)"
        return [*[*way, *notes, *by][:1], step]
    return [*way, *(by if not (way and notes) else []), *notes]  # two lines: what is left out is in `table`


def _undecided(report: Outcome) -> list[str]:
    """Why comparisons have no verdict, or are right with equal values in another order: if most are, or the example."""
    for status, words in (("unsteady", "have no verdict"), ("right", "are right with equal values in another order")):
        found = [check for check in report.checks if check.status == status and check.error]
        if 2 * len(found) > len(report.checks) or any(check.kind == "example" for check in found):
            return [f"{len(found)} of {len(report.checks)} comparisons {words}: {found[0].error}"]
    return []


def _way(report: Outcome) -> list[str]:
    """The call that makes the file at once, where one attempt was not enough."""
    if len(report.attempts) < 2 or not report.call or report.call.endswith("(model, ...)"):
        return []  # a bare call makes the same attempts again
    made = next((number for number, one in enumerate(report.attempts, 1) if one.delivered), len(report.attempts))
    # The first is what was asked for: others were tried, and are no better.
    return [f"attempt {made} of {len(report.attempts)} worked; next time: {report.call}"] if made > 1 else []


def _fitting(title: str, parts: Sequence[str]) -> list[str]:
    """One line with as many of the parts as it has room for, and the number of the others; none for no parts."""
    said, room = list(parts[:1]), WIDTH - len(title) - 10
    for part in parts[1:]:
        if len("; ".join([*said, part])) > room:
            break
        said.append(part)
    more = f" (and {len(parts) - len(said)} more)" if len(said) < len(parts) else ""
    return [title + _cut("; ".join(said), WIDTH - len(title) - len(more)) + more] if said else []


def _wrong(report: Outcome, row: bool, most: int) -> list[str]:
    """At most so many lines, the last of which says what to type."""
    first = report.first_wrong()
    lines = [first.sentence()] if first is not None and row else []
    causes = _causes(report)
    line = next((source for _, source in causes if source), "")
    lines += [f"line: {line}"] if line else []
    # What breaks at a loaded file or at the example has no dimension as its cause.
    lines += _fitting("cause: ", [cause for cause, _ in causes])
    lines += [one.text for one in report.right_within[:1]]
    lines += [f"{one.dimension}: {one.reason}" for one in report.unproven[:2]]
    advice = _next(_advice(report))
    attempts = _attempts(report, first.sentence() if first is not None else "")
    room = max(1, min(_MOST_ATTEMPTS, most - len(advice) - len(lines)))
    lines += attempts if len(attempts) <= room else [*attempts[: room - 1], _others(attempts[room - 1 :])]
    lines += _fitting("note: ", report.notes)
    return [*lines[: most - len(advice)], *advice]


def _attempts(report: Outcome, said: str = "") -> list[str]:
    return attempt_lines(report.attempts, said) if len(report.attempts) > 1 else []


def _advice(report: Outcome) -> str:
    if _draws_matter(report):
        return "make the random numbers an input of forward, or leave the drawing out of it"
    return report.advice or (report.unproven[0].remedy if report.verdict == "unproven" else "")


def _next(advice: str) -> list[str]:
    return [f"next: {advice}"] if advice else []


def _others(attempts: Sequence[str]) -> str:
    return f"{plural(len(attempts), 'more attempt')} without a right file: report.attempts"


def _causes(report: Outcome) -> list[tuple[str, str]]:
    """(what is at fault, the user's line) of each specialized dimension and lost condition."""
    drawn = "file and model both draw random numbers, so they differ, and no comparison can tell what is right"
    causes = [(drawn, one if ".py:" in one else "") for one in report.draws[:1] if _draws_matter(report)]
    causes += [(f"dimension {f.dimension} {f.where}{_place(f.op, f.node)}", f.source) for f in report.frozen]
    for guard in (guard for guard in report.guards if guard.harmful):
        sizes = ", ".join(f"{name}={size}" for name, size in guard.sizes.items())
        said = f"the export assumed {guard.expression}, which is not so at {sizes}, where eager works"
        causes.append((said + _place("", guard.node), guard.source))
    return causes


def _draws_matter(report: Outcome) -> bool:
    """Whether what is drawn explains that file and model differ: not where the file is right but at other sizes."""
    by_size = report.right_within or (report.frozen and any(one.ok for one in report.checks))
    return bool(report.draws) and not by_size


def _place(op: str, node: str) -> str:
    return f" ({op} {node})".replace("( ", "(") if op or node else ""


# ------------------------------------------------------------------ all of it
def every_finding(report: Outcome) -> list[str]:
    """All that was found, a line each."""
    lines = [*_attempts(report), *_distances(report)]
    lines += [f"draws random numbers: {one}" for one in report.draws]
    lines += [f"next time: {report.call}"] if lines and report.ok and report.call else []
    lines += [f"{cause}{f'; {source}' if source else ''}" for cause, source in _causes(report)]
    lines += [one.text for one in report.right_within]
    lines += [f"unproven: dimension {one.dimension}: {one.reason}; {one.remedy}" for one in report.unproven]
    if report.refused:
        left_out = f"{plural(report.refused, 'size')} at which the model itself raises, left out"
        lines.append(f"{left_out}; the first: {report.first_refusal}")
    lines += [
        f"never ran: {one.place}, the side where {one.side}; asked first at {one.nearest}" for one in report.untried
    ]
    lines += [f"right for the first call only: later calls read {one}, which it changes" for one in report.first_call]
    lines += [f"replaced while exporting: {one}" for one in replaced(report)]
    return [relative(line) for line in [*lines, *report.notes, *_next(report.advice)]]


def _distances(report: Outcome) -> list[str]:
    """How far each output is, where `compare=` asked."""
    return [one.sentence() for one in distances(report.checks)] if report.compare else []


def replaced(report: Outcome) -> list[str]:
    """`blocks.0.attn and 11 more by timm-attention`: what stood in for modules and functions, a part for each patch."""
    names: dict[str, list[str]] = {}
    for row in report.plan:
        path = row.get("path") or "the model itself"
        # One function patch may have dozens of targets.
        paths = path.split(", ") if row.get("class") == "function" else [path]
        names.setdefault(str(row.get("patch")), []).extend(paths)
    return [
        f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''} by {patch}"
        for patch, found in names.items()
    ]
