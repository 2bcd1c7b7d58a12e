"""Does `doctor` name the true culprit? On models whose fault is known by hand: small ones, and those of libraries.

python -m benchmarks.diagnosis [TEXT IN NAMES] [--held-out] [--budget SECONDS]

Module: the path is the culprit's. Right: so is the status, and the line or the operator is the one at fault. Each model
is diagnosed in a process of its own; models of libraries that are not installed are left out, and said so. --held-out:
the sample whose culprits were written down before the doctor was asked; else the one that it was made with.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked

RESULTS = Path(__file__).parent / "results"
LIBRARIES = ("transformers", "timm", "vit_pytorch")
Row = dict[str, Any]
OWN = """These are the models with which the doctor was made and mended. How it does on others is in
[another table](diagnosis_held_out.md)."""
HELD_OUT = """Models that the doctor was not made with. They were picked, and their culprits written down from their
sources and from what a plain export said, before the doctor was asked about any of them. Where a model has several
parts at fault, each counts.

The first time it was asked, it named the module of 33 of the 35 (dynamo 26 of 27, trace 7 of 8), and of 26 the line as
well. What it got wrong was mended since, where it had a general cause; asked again, it named the module of all 35 and
the line of 30, but these are models that it has seen by then."""


def judged(case: Any, budget: float) -> Row:
    """One row of the table: what was named, and whether it is true."""
    torch.manual_seed(0)
    start = time.perf_counter()
    found = onnxpatch.doctor(
        case.build().eval(), case.args(), dynamic_shapes=case.dynamic_shapes, exporter=case.exporter, data=case.data,
        proposals=False, budget=budget,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    named = found.culprits[0] if found.culprits else None
    row = {
        "exports": found.exports,
        "seconds": round(seconds, 1),
        "status": found.status,
        "module": False,
        "right": False,
    }
    if named is None:
        return {**row, "path": "-", "code": ""}
    line = any(part in named.code for part in (case.code, *case.others))
    module = case.blames(named.path)
    right = module and named.status == case.status and line and case.operator in named.operator
    told = {"path": named.name, "code": named.code, "operator": named.operator}
    return {**row, **told, "module": module, "right": right}


def alone(case: Any, budget: float) -> Row:
    """`judged` in a process of its own, given twice the budget."""
    row = forked.run(lambda: judged(case, budget), 2 * budget)
    if "right" in row:
        return row
    return {"path": "-", "code": row["reason"][:120], "module": False, "right": False, "exports": 0, "seconds": 0.0}


def versions() -> str:
    names = ("onnx", "onnxscript", "onnxruntime", *LIBRARIES)
    known = [(name, importlib.util.find_spec(name)) for name in names]
    from importlib.metadata import version

    return ", ".join([f"torch {torch.__version__}", *(f"{name} {version(name)}" for name, spec in known if spec)])


def table(rows: Sequence[tuple[Any, Row]], left_out: Sequence[str], about: str) -> str:
    lines = ["# Diagnosis: is the true culprit named?", "", about, "", f"Versions: {versions()}.", ""]
    if left_out:
        lines += [f"Left out, not installed: {', '.join(left_out)}.", ""]
    lines += ["| exporter | module | right | models | median seconds | median exports |", "|---|---|---|---|---|---|"]
    for exporter in ("trace", "dynamo", "script", ""):
        mine = [row for case, row in rows if case.exporter == (exporter or case.exporter)]
        if mine:
            seconds, exports = (statistics.median(row[key] for row in mine) for key in ("seconds", "exports"))
            module, right = (sum(row[key] for row in mine) for key in ("module", "right"))
            lines.append(f"| {exporter or 'all'} | {module} | {right} | {len(mine)} | {seconds:.1f} | {exports:.0f} |")
    lines += ["", "| model | exporter | culprit | named | line named | | exports | seconds |"]
    lines += ["|---|---|---|---|---|---|---|---|", *(_row(case, row) for case, row in rows)]
    return "\n".join(lines) + "\n"


def _row(case: Any, row: Row) -> str:
    name = f"{case.needs}: {case.name}" if case.needs else case.name
    code = row["code"].replace("|", "\\|")[:80]
    shown = " ".join(part for part in (f"`{code}`" if code else "", row.get("operator", "")) if part)
    verdict = "right" if row["right"] else ("module" if row["module"] else "**wrong**")
    path = case.path or "(root)"
    return (
        f"| {name} | {case.exporter} | {path} | {row['path']} | {shown} | {verdict} | {row['exports']} |"
        f" {row['seconds']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", nargs="?", default="")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--budget", type=float, default=180.0)
    asked = parser.parse_args()
    forked.warmed()
    from tests.diagnosis import failing_models
    from tests.diagnosis.failing_models import held_out, libraries

    left_out = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    rows = []
    for case in held_out.CASES if asked.held_out else (*failing_models.CASES, *libraries.CASES):
        if asked.text in f"{case.needs}: {case.name} {case.exporter}" and case.needs not in left_out:
            rows.append((case, alone(case, asked.budget)))
            print(_row(*rows[-1]), flush=True)
    text = table(rows, left_out, HELD_OUT if asked.held_out else OWN)
    if not asked.text:
        (RESULTS / f"diagnosis{'_held_out' if asked.held_out else ''}.md").write_text(text)
    print(text.partition("\n| model |")[0])


if __name__ == "__main__":
    main()
