"""Does `doctor` name the true culprit? On models whose fault is known by hand: small ones, and those of libraries.

python -m benchmarks.diagnosis [TEXT IN NAMES] [--budget SECONDS]

Right: the path is the culprit's, the status is right, and the line or the operator is the one at fault. Each model is
diagnosed in a process of its own; models of libraries that are not installed are left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked, torchvision_ops

RESULTS = Path(__file__).parent / "results"
LIBRARIES = ("transformers", "timm", "vit_pytorch")
Row = dict[str, Any]


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
    row = {"exports": found.exports, "seconds": round(seconds, 1), "status": found.status, "right": False}
    if named is None:
        return {**row, "path": "-", "code": ""}
    line = any(part in named.code for part in (case.code, *case.others))
    right = case.blames(named.path) and named.status == case.status and line and case.operator in named.operator
    return {**row, "path": named.name, "code": named.code, "operator": named.operator, "right": right}


def alone(case: Any, budget: float) -> Row:
    """`judged` in a process of its own, given twice the budget."""
    row = forked.run(lambda: judged(case, budget), 2 * budget)
    if "right" in row:
        return row
    return {"path": "-", "code": row["reason"][:120], "right": False, "exports": 0, "seconds": 0.0}


def versions() -> str:
    names = ("onnx", "onnxscript", "onnxruntime", *LIBRARIES)
    known = [(name, importlib.util.find_spec(name)) for name in names]
    from importlib.metadata import version

    return ", ".join([f"torch {torch.__version__}", *(f"{name} {version(name)}" for name, spec in known if spec)])


def table(rows: Sequence[tuple[Any, Row]], left_out: Sequence[str]) -> str:
    lines = ["# Diagnosis: is the true culprit named?", "", f"Versions: {versions()}.", ""]
    if left_out:
        lines += [f"Left out, not installed: {', '.join(left_out)}.", ""]
    lines += ["| exporter | right | models | median seconds | median exports |", "|---|---|---|---|---|"]
    for exporter in ("trace", "dynamo", "script", ""):
        mine = [row for case, row in rows if case.exporter == (exporter or case.exporter)]
        if mine:
            seconds, exports = (statistics.median(row[key] for row in mine) for key in ("seconds", "exports"))
            right = sum(row["right"] for row in mine)
            lines.append(f"| {exporter or 'all'} | {right} | {len(mine)} | {seconds:.1f} | {exports:.0f} |")
    lines += ["", "| model | exporter | culprit | named | line named | | exports | seconds |"]
    lines += ["|---|---|---|---|---|---|---|---|", *(_row(case, row) for case, row in rows)]
    return "\n".join(lines) + "\n"


def _row(case: Any, row: Row) -> str:
    name = f"{case.needs}: {case.name}" if case.needs else case.name
    code = row["code"].replace("|", "\\|")[:80]
    shown = " ".join(part for part in (f"`{code}`" if code else "", row.get("operator", "")) if part)
    verdict = "right" if row["right"] else "**wrong**"
    path = case.path or "(root)"
    return (
        f"| {name} | {case.exporter} | {path} | {row['path']} | {shown} | {verdict} | {row['exports']} |"
        f" {row['seconds']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", nargs="?", default="")
    parser.add_argument("--budget", type=float, default=180.0)
    asked = parser.parse_args()
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torchvision_ops.declare()
    from tests import ailing
    from tests.ailing import libraries

    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None)  # children find the exporter loaded
    left_out = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    rows = []
    for case in (*ailing.CASES, *libraries.CASES):
        if asked.text in f"{case.needs}: {case.name} {case.exporter}" and case.needs not in left_out:
            rows.append((case, alone(case, asked.budget)))
            print(_row(*rows[-1]), flush=True)
    text = table(rows, left_out)
    if not asked.text:
        (RESULTS / "diagnosis.md").write_text(text)
    print(text.partition("\n| model |")[0])


if __name__ == "__main__":
    main()
