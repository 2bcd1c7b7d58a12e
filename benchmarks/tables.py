"""The Markdown of coverage: totals, what only plain torch gets right, times, model by model, reasons."""

from __future__ import annotations

from collections import Counter
from importlib import metadata
from statistics import median
from typing import Any

from benchmarks.case import family

LABEL = {
    "plain": "without",
    "patched": "with the kit",
    "static": "with the kit, static size",
    "export": "onnxpatch.export",
    "branches": "onnxpatch.export, branches",
    "default": "onnxpatch.export, all attempts of this exporter",
    "declared": "all attempts, then the sizes that the refusal says to declare",
    "called": "onnxpatch.export as called by default",
    "auto": "onnxpatch.export, all attempts",
    "narrow": "onnxpatch.export, all attempts, then bounds",
}
ALWAYS = ("torch", "onnx", "onnxscript", "onnxruntime", "einops")
SIGN = {"right": "right", "wrong": "**silently wrong**", "refused": "refused", "broken": "eager fails",
        "unsteady": "eager unsteady", "unproven": "unproven"}  # fmt: skip
# The kits that compare the file before they hand it out.
PROVED = (
    "export",
    "branches",
    "default",
    "declared",
    "called",
    "auto",
    "narrow",
)

Answer = dict[str, Any]
Column = tuple[str, str]  # exporter, kit


def document(name: str, found: list[Answer], only: str = "", every: int = 1) -> str:
    """All of one family's page. only: parts of the names of its cases; every: one case in so many was measured."""
    part = [f"A part of the family: the cases named {', '.join(only.split('|'))}.", ""] if only else []
    part += [f"A sample of the family: one case in {every}.", ""] if every > 1 else []
    parts = [f"# Coverage: {name}", "", f"Versions: {versions(name)}.", "", *part, *totals(found), "", *times(found)]
    parts += ["", *memory(found), *attempts(found), *in_openvino(found), *details(found)]
    if left := reasons(found):
        parts += ["", "## Not right with the kit", "", *left]
    if left_out := getattr(family(name), "LEFT_OUT", {}):
        parts += ["", "## Left out", "", *(f"- {what}: {why}" for what, why in left_out.items())]
    return "\n".join(parts) + "\n"


def versions(name: str) -> str:
    return ", ".join(f"{d} {metadata.version(d)}" for d in dict.fromkeys((*ALWAYS, *family(name).LIBRARIES)))


def columns(found: list[Answer]) -> list[Column]:
    return list(dict.fromkeys((a["exporter"], a["kit"]) for a in found))


def by_case(found: list[Answer], column: Column) -> dict[str, Answer]:
    return {a["case"]: a for a in found if (a["exporter"], a["kit"]) == column}


def lost(found: list[Answer], column: Column) -> list[str]:
    """The models that plain torch exports right and this kit does not."""
    plain, kit = by_case(found, (column[0], "plain")), by_case(found, column)
    if column[0] == "auto":  # what plain torch has right with either exporter
        plain = {a["case"]: a for a in found if a["kit"] == "plain" and a["verdict"] == "right"}
    return [c for c, a in plain.items() if a["verdict"] == "right" and c in kit and kit[c]["verdict"] != "right"]


def totals(found: list[Answer]) -> list[str]:
    """One row per exporter and kit: how many are right, silently wrong, refused, and right without the kit only."""
    shown = {"right": "right", "wrong": "silently wrong", "refused": "refused"}
    for verdict, words in (("unproven", "unproven"), ("unsteady", "eager unsteady"), ("broken", "eager fails")):
        if any(a["verdict"] == verdict for a in found):
            shown[verdict] = words
    heads = [*shown.values(), "plain right, with the kit not", "exports"]
    heads += ["most memory, MB"] if any(a.get("process") for a in found) else []
    lines = [f"| exporter | | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for column in columns(found):
        mine = [a["verdict"] for a in by_case(found, column).values()]
        counts = [str(mine.count(verdict)) for verdict in shown]
        counts += ["" if column[1] in ("plain", "static") else str(len(lost(found, column))), str(len(mine))]
        if heads[-1] != "exports":
            most = max(a.get("process") or 0 for a in by_case(found, column).values())
            counts.append(f"{most / 1e6:.0f}" if most else "")
        lines.append(f"| {column[0]} | {LABEL[column[1]]} | {' | '.join(counts)} |")
    named = {c: lost(found, c) for c in columns(found) if c[1] not in ("plain", "static")}
    rows = [f"- {exporter}, {LABEL[kit]}: {', '.join(names)}" for (exporter, kit), names in named.items() if names]
    return [*lines, "", "Plain right, with the kit not:", "", *rows] if rows else lines


def times(found: list[Answer]) -> list[str]:
    """Medians over the models that both export right: processor seconds of plain, of the kit, and of their ratio."""
    lines = ["| exporter | | models | plain, s | with the kit, s | ratio |", "|---|---|---|---|---|---|"]
    for exporter, kit in columns(found):
        plain, mine = by_case(found, (exporter, "plain")), by_case(found, (exporter, kit))
        both = [c for c in mine if c in plain and plain[c]["verdict"] == mine[c]["verdict"] == "right"]
        if kit == "plain" or not both:
            continue
        ours, theirs = [mine[c]["seconds"] for c in both], [plain[c]["seconds"] for c in both]
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        label = LABEL[kit] + (" (proof included)" if kit in PROVED else "")
        figures = f"{median(theirs):.2f} | {median(ours):.2f} | {ratio:.2f}"
        lines.append(f"| {exporter} | {label} | {len(both)} | {figures} |")
    return ["Export times in seconds of the processor, medians:", "", *lines] if len(lines) > 2 else []


def memory(found: list[Answer]) -> list[str]:
    """The exports that took the most, and whether a run of eager took more than the report's limit."""
    known = [a for a in found if a.get("process")]
    if not known:
        return []
    said = [a for a in known if a.get("peak")]
    beyond = [a["case"] for a in said if a.get("limit") and a["peak"] > a["limit"]]
    lines = [f"Memory of the process beside what it had. Of {len(said)} exports whose report has the peak of eager's "
             f"runs, {len(beyond) or 'none'} had one above its limit{': ' if beyond else ''}{', '.join(beyond)}. "
             f"{share(known)}The most:", ""]  # fmt: skip
    largest = sorted(known, key=lambda a: a["process"], reverse=True)[:5]
    for one in largest:
        runs = f", a run of eager {one['peak'] / 1e6:.0f}" if one.get("peak") else ""
        lines.append(f"- {one['case']}, {one['exporter']}, {LABEL[one['kit']]}: {one['process'] / 1e6:.0f} MB{runs}")
    return [*lines, ""]


def share(known: list[Answer]) -> str:
    """How many inputs were not run since eager would take more than the limit, of all that might have been compared."""
    compared, left_out = (sum(a.get(key) or 0 for a in known) for key in ("probes", "left_out"))
    if not compared:
        return ""
    part = left_out / (left_out + compared)
    return f"Inputs left out since a run would take more: {left_out:.0f} beside {compared} compared, {part:.1%}. "


def in_openvino(found: list[Answer]) -> list[str]:
    """Of the files that are right in onnxruntime, how many are right in OpenVINO, and why the others are not."""
    asked = [a for a in found if a.get("openvino")]
    if not asked:
        return []
    lines = [f"In OpenVINO {metadata.version('openvino')}, of the files that are right in onnxruntime:", ""]
    lines += ["| exporter | | files | right | wrong | refused | share right |", "|---" * 7 + "|"]
    for exporter, kit in columns(asked):
        mine = [a["openvino"] for a in by_case(asked, (exporter, kit)).values()]
        counts = " | ".join(str(mine.count(verdict)) for verdict in ("right", "wrong", "refused"))
        share = mine.count("right") / len(mine)
        lines.append(f"| {exporter} | {LABEL[kit]} | {len(mine)} | {counts} | {share:.0%} |")
    left = [a for a in asked if a["openvino"] != "right"]
    named = [
        f"- {a['case']}, {a['exporter']}, {LABEL[a['kit']]}: {a['openvino']}: {a['openvino_reason'][:140]}"
        for a in left
    ]
    return [*lines, "", *named, ""] if named else [*lines, ""]


def attempts(found: list[Answer]) -> list[str]:
    """How many attempts were made for the models that are right with all attempts, and with what the last one came."""
    right = [a for a in found if a["kit"] == "auto" and a["verdict"] == "right"]
    if not right:
        return []
    lines = ["Attempts until the file was right:", "", "| attempts | models | the call |", "|---|---|---|"]
    calls = Counter((a["attempts"], a["call"]) for a in right)
    lines += [f"| {made} | {count} | `{call}` |" for (made, call), count in sorted(calls.items())]
    return [*lines, ""]


def details(found: list[Answer]) -> list[str]:
    """One row per model, one column per exporter and kit; seconds of the processor where all attempts were made."""
    timed = any(a["kit"] == "called" for a in found)  # how long a user waits
    verdicts = {(a["case"], a["exporter"], a["kit"]): _verdict(a, timed) for a in found}
    heads = columns(found)
    lines = [
        "| model | " + " | ".join(f"{e}, {LABEL[k]}" for e, k in heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for case in dict.fromkeys(a["case"] for a in found):
        lines.append(f"| {case} | " + " | ".join(verdicts.get((case, *column), "") for column in heads) + " |")
    return lines


def _verdict(answer: Answer, timed: bool) -> str:
    """The verdict; with all attempts, how many were made where it was more than one. timed: with its seconds."""
    several = answer["kit"] == "auto" and (answer.get("attempts") or 1) > 1
    took = f", {answer['seconds']:.1f} s" if timed and answer.get("seconds") else ""
    return SIGN[answer["verdict"]] + (f", {answer['attempts']} attempts" if several else "") + took


def reasons(found: list[Answer]) -> list[str]:
    """Why what the kit was asked for is still not right."""
    left = [a for a in found if a["kit"] != "plain" and a["verdict"] != "right"]
    return [f"- {a['case']}, {a['exporter']}, {LABEL[a['kit']]}: {a['verdict']}: {a['reason'][:140]}" for a in left]
