"""Which verdicts does only one maker of probes, or one reader of constants, decide?

python -m benchmarks.ablation trace|dynamo [--only TEXT] [--every N] [--again] [--resume] [--without MAKER ...]

Each devious model whose graph is wrong is verified with every maker, and once more without each that made all of the
probes at which the graph was wrong, and then without what feeds it. Then the graph is *found* wrong by another
probe, or the report *names* a side of the model's own conditions that no probe took, or it is *silent*.
--without: once without all of these instead. --again: the models alone that the table names so far, which is
benchmarks/results/ablation_<exporter>.md. The answers are kept in a .jsonl beside it, model by model: --resume, with
the same options, goes on where a run was cut.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxpatch
from benchmarks import forked
from benchmarks.verdict_subjects import Subject, devious
from benchmarks.verdicts import LIMIT, RESULTS, truth
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.process import undone
from onnxpatch.verification import data_search, numbers_in_code, reference, size_search

# The rows of makers, and what else makes probes or reads constants, each with what stands in its place.
_HOMES = (data_search, size_search)
MAKERS = [name for home in _HOMES for name in home.MAKERS]
OTHERS: dict[str, tuple[ModuleType, str, Any]] = {
    "any other size": (reference, "size_probes", lambda oracle: iter(())),
    "magnitudes": (reference, "_magnitudes", lambda *_: iter(())),
    "unmoved dimensions": (reference, "_unmoved", lambda *_: iter(())),
    "constants of the code": (numbers_in_code, "_loaded", lambda *_: iter(())),
    "sizes by the names of attributes": (numbers_in_code, "_named", lambda *_: Counter()),
}


@contextlib.contextmanager
def _replaced(home: ModuleType, attribute: str, by: object) -> Iterator[None]:
    before = vars(home)[attribute]
    with undone(lambda: setattr(home, attribute, before)):
        setattr(home, attribute, by)
        yield


@contextlib.contextmanager
def _without(names: Collection[str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for home in _HOMES:
            left = {name: maker for name, maker in home.MAKERS.items() if name not in names}
            stack.enter_context(_replaced(home, "MAKERS", left))
        for name in set(names) & set(OTHERS):
            stack.enter_context(_replaced(*OTHERS[name]))
        yield


@contextlib.contextmanager
def _watched(made: dict[str, set[str]]) -> Iterator[None]:
    """Notes the labels of what each maker makes."""
    with contextlib.ExitStack() as stack:
        for home in _HOMES:
            noting = {name: _noting(makes, made[name]) for name, makes in home.MAKERS.items()}
            stack.enter_context(_replaced(home, "MAKERS", noting))
        yield


def _noting(maker: Callable[..., Iterator[Any]], labels: set[str]) -> Callable[..., Iterator[Any]]:
    def noting(*search: Any) -> Iterator[Any]:
        for one in maker(*search):
            labels.add(one.label)
            yield one

    return noting


def _told(file: Path, subject: Subject) -> tuple[str, set[str]]:
    """(found, named with the place, or silent; the labels of the probes at which the graph is wrong)."""
    example = copy.deepcopy(subject.inputs[0])
    report = onnxpatch.verify(file, copy.deepcopy(subject.model), example, dynamic_shapes=subject.dynamic)
    if not report.ok:
        return "found", {check.label for check in report.checks if not check.ok}
    said = "; ".join(f"{Path(one.place).name}: {one.side}" for one in report.untried[:2])
    said = said or ("" if report.sides_recorded else "sides not recorded") or "; ".join(report.first_call)
    return f"named: {said}" if said else "silent", set()


def told(subject: Subject, exporter: str, folder: Path, at_once: Sequence[str]) -> dict[str, Any]:
    """By maker, what is told of a wrong graph without it; under "all" with every one."""
    file = folder / "m.onnx"
    example, dynamo = copy.deepcopy(subject.inputs[0]), exporter == "dynamo"
    model = copy.deepcopy(subject.model)
    onnxpatch.export(model, example, file, dynamic_shapes=subject.dynamic, dynamo=dynamo, check=False)
    if not Graph(file).outputs or truth(file, copy.deepcopy(subject), False) == "right":
        return {}
    if at_once:
        with _without(at_once):
            return {"all": _told(file, subject)[0]}
    made: dict[str, set[str]] = defaultdict(set)
    with _watched(made):
        answer, wrong = _told(file, subject)
    answers = {"all": answer}
    # Where another maker's probe was wrong as well, that one decides, too.
    decide = [name for name in MAKERS if wrong and wrong <= made[name]]
    for name in (*decide, *OTHERS) if wrong and (decide or not wrong & set().union(*made.values())) else ():
        with _without([name]):
            answers[name] = _told(file, subject)[0]
    return answers


def _job(subject: Subject, exporter: str, at_once: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return told(subject, exporter, Path(folder), at_once)


def table(found: dict[str, dict[str, Any]], exporter: str) -> str:
    """One row for each maker, then each model that only one decides."""
    with_what = ", ".join(f"{name} {version}" for name, version in versions().items())
    wrong = {model: answers for model, answers in found.items() if "all" in answers}
    count = {kind: sum(one["all"].startswith(kind) for one in wrong.values()) for kind in ("found", "named", "silent")}
    lines = [f"{with_what}; {exporter}: {len(found)} devious models, {len(wrong)} wrong: {count['found']} found, "
             f"{count['named']} named, {count['silent']} silent with every maker", "",
             "| without | only it finds | of these named all the same | silent |", "|---|---|---|---|"]  # fmt: skip
    odd = []
    for name in (*MAKERS, *OTHERS):
        lost = {m: one[name] for m, one in wrong.items() if one["all"] == "found" != one.get(name, "found")}
        named = sum(one.startswith("named") for one in lost.values())
        lines.append(f"| {name} | {len(lost)} | {named} | {len(lost) - named} |")
        odd += [f"- {name}: {model}: {one}" for model, one in lost.items()]
    return "\n".join([*lines, "", *odd]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exporter", choices=["trace", "dynamo"])
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1, help="one model in so many")
    parser.add_argument("--again", action="store_true", help="the models that the table names")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--without", nargs="*", default=[])
    asked = parser.parse_args()
    path = RESULTS / f"ablation_{asked.exporter}.md"
    record = path.with_suffix(".jsonl")
    lines = record.read_text().splitlines() if asked.resume and record.exists() else []
    found: dict[str, dict[str, Any]] = dict(map(json.loads, lines))
    known, kept = path.read_text() if asked.again else "", not asked.without and not asked.only
    forked.warmed()
    models = (one for one in list(devious())[:: asked.every] if asked.only in one.name and one.name not in found)
    for subject in (one for one in models if not asked.again or f": {one.name}: " in known):
        found[subject.name] = forked.run(functools.partial(_job, subject, asked.exporter, asked.without), LIMIT)
        print(subject.name, found[subject.name].get("all", found[subject.name].get("reason", "right")), flush=True)
        if kept:
            record.write_text("".join(json.dumps(row) + "\n" for row in found.items()))
    text = table(found, asked.exporter)
    print(text)
    if kept:
        path.write_text(text)


if __name__ == "__main__":
    main()
