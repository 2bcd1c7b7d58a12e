"""Which verdicts does only one maker of probes, or one reader of constants, decide?

python -m benchmarks.ablation trace|dynamo [--only TEXT] [--every N] [--without MAKER ...]

Each devious model whose graph is wrong is verified with every maker, and once more without each that made all of the
probes at which the graph was wrong, and without each reader of constants. Then the graph is *found* wrong by another
probe, or the report *names* a side of the model's own conditions that no probe took, or it is *silent*.
--without: once without all of these instead. The table is benchmarks/results/ablation_<exporter>.md.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import logging
import operator
import re
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked, torchvision_ops
from benchmarks.verdict_subjects import Subject, devious
from benchmarks.verdicts import LIMIT, RESULTS, truth
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.undone import undone
from onnxpatch.verification.asked_numbers import Asked
from onnxpatch.versions import versions

_MAKERS = """
    probe_search: _magnitudes _other_data _unmoved moved_to_constants variants structured asked_data
    probe_search: fractions_of_sizes size_branches ratios_of_sizes resized_sizes beyond_constants beyond_counts
    probe_search: in_proportion at_keys size_probes
    probe_data: _factors _shares _one_at_a_time
    structured_data: _pairs
    asked_data: _forms _told _sizes
    data_constants: DataConstants.beyond DataConstants.multiples DataConstants.flips DataConstants._totals
    data_constants: _same _paired with_rows with_number
    size_search: _trained _swapped _coupled
"""
MAKERS = [f"{file}.{name}" for file, names in re.findall(r"(\w+): (.*)", _MAKERS) for name in names.split()]
READERS: dict[str, object] = {
    "hints.asked": lambda model: Asked(), "hints.looked_up": lambda model: (), "hints._constants": lambda code: (),
    "hints._grids": lambda *_: (), "hints._identifiers": lambda model: (),
    "hints._NATIVE": re.compile("$^"), "hints._STEP": re.compile("$^"),
}  # fmt: skip
# The makers that read what the readers find.
_READING = [f"probe_search.{name}" for name in (
    "asked_data", "size_branches", "beyond_constants", "in_proportion", "at_keys", "size_probes"
)] + ["data_constants.DataConstants.flips"]  # fmt: skip


def _owner(name: str) -> tuple[Any, str]:
    file, *path = name.split(".")
    home = importlib.import_module(f"onnxpatch.verification.{file}")
    return operator.attrgetter(*path[:-1])(home) if path[1:] else home, path[-1]


@contextlib.contextmanager
def _replaced(name: str, by: object) -> Iterator[None]:
    home, attribute = _owner(name)
    before = vars(home)[attribute]
    with undone(lambda: setattr(home, attribute, before)):
        setattr(home, attribute, by)
        yield


@contextlib.contextmanager
def _without(names: Collection[str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(_replaced(name, READERS.get(name, lambda *_, **__: ())))
        yield


@contextlib.contextmanager
def _watched(made: dict[str, set[str]]) -> Iterator[None]:
    """Notes the labels of what each maker makes."""
    with contextlib.ExitStack() as stack:
        for name in MAKERS:
            home, attribute = _owner(name)
            stack.enter_context(_replaced(name, _noting(vars(home)[attribute], made[name])))
        yield


def _noting(maker: Callable[..., Any], labels: set[str]) -> Callable[..., Iterator[Any]]:
    def noting(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for one in maker(*args, **kwargs):
            labels.add(str(one[0] if isinstance(one, tuple) else getattr(one, "label", one)))
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
    fed = wrong and wrong <= set().union(*(made[name] for name in _READING))
    for name in (*decide, *(READERS if fed else ())):
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
    for name in (*MAKERS, *READERS):
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
    parser.add_argument("--without", nargs="*", default=[])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torchvision_ops.declare()
    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None)  # children find the exporter loaded
    found: dict[str, dict[str, Any]] = {}
    for subject in (one for one in list(devious())[:: asked.every] if asked.only in one.name):
        found[subject.name] = forked.run(functools.partial(_job, subject, asked.exporter, asked.without), LIMIT)
        print(subject.name, found[subject.name].get("all", found[subject.name].get("reason", "right")), flush=True)
    text = table(found, asked.exporter)
    print(text)
    if not asked.without and not asked.only:
        (RESULTS / f"ablation_{asked.exporter}.md").write_text(text)


if __name__ == "__main__":
    main()
