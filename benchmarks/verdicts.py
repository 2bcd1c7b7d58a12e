"""Do `verify` and `export` ever call a wrong graph right, or a right one wrong?

python -m benchmarks.verdicts trace|dynamo [--families vit_pytorch=8 timm=4] [--judges verify export branches]
                              [--only TEXT] [--resume]

A model's graph is run by onnxruntime at held-out inputs (every branch, other sizes) and compared with eager: that is
the truth, but where eager's own answer moves as far with one rounding of its inputs, or in float64. `verify` judges the
graph of a plain export, of which it is given the example alone; `export` judges its own graph, with its patches,
without and with branches=True. Every judgement is made in a process of its own.

Judgements are kept in benchmarks/results/verdicts_<exporter>.jsonl, from which the table beside it is written: what is
judged again (--only, --judges) takes the place of what was there; --resume judges only what is not there yet.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Collection, Container, Iterator
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked
from benchmarks.steady import movement
from benchmarks.verdict_subjects import Subject, devious, of_family, small
from onnxpatch.errors import RunError
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.graph import random_nodes
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.verification.comparison import NON_FINITE, compare_all
from onnxpatch.verification.eager import Eager, flatten_output
from onnxpatch.verification.input_matching import match_inputs

RESULTS = Path(__file__).parent / "results"
Row = tuple[str, ...]
_DRAWS = 4
LIMIT = 600.0  # seconds for one judgement


def truth(file: Path, subject: Subject, branches: bool) -> str:
    """right, or wrong: what onnxruntime says at every input, beside eager."""
    graph, first = Graph(file), Inputs(subject.model, subject.inputs[0])
    feed = match_inputs(graph, first)
    # Two draws of few elements may agree by chance: a graph that draws is run again.
    often = _DRAWS if random_nodes(graph.proto) else 1
    for args in (one for one in subject.inputs for _ in range(often)):
        values = Inputs(subject.model, args).as_given()
        answer = Eager(subject.model, first).ask(values)
        assert answer.outputs is not None, answer.error
        told = subject.reference if branches else None
        expected = flatten_output(told(answer.raw, args)) if told else list(answer.outputs)
        try:
            found = graph.run(feed.of(values))
        except RunError as error:
            return f"wrong: {error}"
        if branches and len(found) == len(expected):  # sides of two dtypes have their common one in the graph
            expected = [torch.as_tensor(e.numpy().astype(f.dtype)) for e, f in zip(expected, found, strict=True)]
        bad = [o for o in compare_all(graph.outputs, expected, found, 1e-3) if not o.ok]
        furthest = max((one.relative for one in bad), default=0.0)
        exact = subject.exact or any(one.reason == NON_FINITE for one in bad)  # no rounding excuses eager's NaN
        excused = bad and not exact and movement(subject.model, args) >= furthest / 2
        if len(found) != len(expected) or (bad and not excused):
            shapes = [tuple(v.shape) for v in values if isinstance(v, torch.Tensor)]
            return f"wrong: {bad[0].reason if bad else 'outputs'} at {shapes}"
    return "right"


def judged(subject: Subject, exporter: str, judge: str, folder: Path) -> tuple[str, str]:
    """(the truth, the verdict), each with its reason; 'refused' where there is no file to judge."""
    file, example = folder / "m.onnx", subject.inputs[0]
    call: dict[str, Any] = {"dynamic_shapes": subject.dynamic, "dynamo": exporter == "dynamo"}
    call |= {"only": ()} if judge == "verify" else {"branches": judge == "branches"}
    try:
        onnxpatch.export(copy.deepcopy(subject.model), copy.deepcopy(example), file, check=False, **call)
        if not Graph(file).outputs:
            return "refused", "refused"
    except Exception as error:
        return f"refused: {error}"[:300], "refused"
    try:
        known = truth(file, copy.deepcopy(subject), judge == "branches")
    except onnxpatch.InputError as error:
        return f"refused: {error}"[:300], "refused"
    if judge == "verify":
        report = onnxpatch.verify(file, subject.model, copy.deepcopy(example), dynamic_shapes=subject.dynamic)
        first = report.first_wrong()
        return known, f"wrong: {first.sentence() if first else 'unsteady'}" if report.wrong else _said(report)
    try:
        report = onnxpatch.export(subject.model, copy.deepcopy(example), attempts="asked", bounds="never", **call)
    except onnxpatch.VerificationError as error:
        return known, f"wrong: {error}"[:400]
    return known, _said(report)


def _said(report: onnxpatch.Report) -> str:
    """The verdict; named: right where tried, and a side of a condition that never ran is named."""
    return f"named: {report.untried[0].sentence()}" if report.ok and report.untried else report.verdict


def _job(subject: Subject, exporter: str, judge: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        known, verdict = judged(subject, exporter, judge, Path(folder))
    return {"known": known, "verdict": verdict}


def kept(record: Path) -> dict[tuple[str, str], Row]:
    """(name, judge, truth, verdict) of every judgement there is, by name and judge."""
    lines = record.read_text().splitlines() if record.exists() else []
    return {(row[0], row[1]): row for row in (tuple(json.loads(line)) for line in lines)}


def keep(record: Path, known: dict[tuple[str, str], Row]) -> None:
    record.write_text("".join(json.dumps(row) + "\n" for row in known.values()))


def rows(subjects: Iterator[Subject], exporter: str, judges: list[str], known: Container[Any]) -> Iterator[Row]:
    """The judgements of every subject that are not known."""
    for subject in subjects:
        for judge in judges:
            if (judge == "branches" and not subject.reference) or (subject.name, judge) in known:
                continue
            answer = forked.run(lambda s=subject, j=judge: _job(s, exporter, j), LIMIT)  # type: ignore[misc]
            told, verdict = (
                str(answer.get(key, f"unanswered: {answer.get('reason')}")) for key in ("known", "verdict")
            )
            yield subject.name, judge, *(_short(cell) for cell in (told, verdict))


def _short(text: str) -> str:
    """On one line, files named from the project's folder on."""
    return " ".join(text.split()).replace(f"{RESULTS.parents[1]}/", "")[:400]


def table(found: Collection[Row], exporter: str) -> str:
    counts = Counter((judge, known.split(":")[0], verdict.split(":")[0]) for _, judge, known, verdict in found)
    misses = sum(n for (_, known, verdict), n in counts.items() if known == "wrong" and verdict == "right")
    alarms = sum(n for (_, known, verdict), n in counts.items() if known == "right" and verdict == "wrong")
    named = sum(n for (_, known, verdict), n in counts.items() if known == "wrong" and verdict == "named")
    with_what = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = [f"{with_what}; {exporter}: {misses} misses, {alarms} false alarms", ""]
    lines += ["Named: the verdict is right where tried, and a side of a condition that never ran is named."]
    lines += [
        f"A miss is a wrong graph that is called right with nothing named; of {named} wrong ones a side is named."
    ]
    lines += [""]
    if unproven := sum(n for (_, _, verdict), n in counts.items() if verdict == "unproven"):
        lines += [f"Unproven, which is neither: {unproven}.", ""]
    lines += ["| asked | at the held-out inputs | says | models |", "|---|---|---|---|"]
    lines += [f"| {a} | {b} | {c} | {n} |" for (a, b, c), n in sorted(counts.items())]
    odd = [f"- {n} ({j}): {k}; says {v}" for n, j, k, v in found
           if k.split(":")[0] != v.split(":")[0] and not (k == "right" and v.startswith("named"))]  # fmt: skip
    return "\n".join([*lines, *([""] if odd else []), *odd]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exporter", choices=["trace", "dynamo"])
    parser.add_argument("--families", nargs="*", default=["vit_pytorch=8", "timm=5"])
    parser.add_argument("--judges", nargs="*", default=["verify", "export", "branches"])
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    forked.warmed()
    pairs = (one.partition("=") for one in asked.families)
    everything = itertools.chain(
        devious(), small(), *(of_family(name, int(every or 1), asked.only) for name, _, every in pairs)
    )
    record = RESULTS / f"verdicts_{asked.exporter}.jsonl"
    found = kept(record)
    chosen = (s for s in everything if asked.only in s.name)
    for row in rows(chosen, asked.exporter, asked.judges, tuple(found) if asked.resume else ()):
        found[row[0], row[1]] = row
        keep(record, found)
        print(" | ".join(cell[:160] for cell in row), flush=True)
    text = table(found.values(), asked.exporter)
    print(text)
    (RESULTS / f"verdicts_{asked.exporter}.md").write_text(text)


if __name__ == "__main__":
    main()
