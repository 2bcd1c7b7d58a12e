"""Which sides of their own conditions do the probes of real models never take? Without an export: eager alone.

usage: python -m benchmarks.covered [--families lucidrains timm=3] [--only TEXT] [--resume]

A model is fully covered where every side that an input can take was taken by a probe. Every probe counts here, as if
the file were right at all of them. `timm=3` measures one case in three. The answers are kept in
benchmarks/results/covered.jsonl, from which the table covered.md is written.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks import case as families
from benchmarks import forked
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import tells
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.untried import untried

RESULTS = Path(__file__).parent / "results"
LIMIT = 300.0  # seconds for one model
_NAMED = 12  # conditions in the table: those that most models leave


def sides(model: torch.nn.Module, args: tuple[Any, ...], dynamic: Any) -> list[tuple[str, str]]:
    """(place, side) of what no probe of a model took."""
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, dynamic, None, None, "trace"))
    reference = Reference(model, inputs, dims, Budget.starting_now(16))
    empty = [probe for dim in dims if (probe := reference.oracle.empty(dim)) is not None]
    found = untried(reference.eager.sides, [probe for probe in (*empty, *reference.probes) if tells(probe)])
    assert found is not None, "no side was recorded"
    return [(one.place.rpartition("-packages/")[2], one.side) for one in found]


def _job(family: str, case: str) -> dict[str, Any]:
    made = families.build(family, case)
    assert made is not None
    return {"sides": sides(made.model, made.inputs[0], made.dynamic_shapes)}


def table(rows: list[dict[str, Any]]) -> str:
    measured = [row for row in rows if "sides" in row]
    lines = ["| family | models | fully covered | sides that never ran |", "|---|---|---|---|"]
    for name in sorted({row["family"] for row in measured}):
        mine = [row["sides"] for row in measured if row["family"] == name]
        lines.append(f"| {name} | {len(mine)} | {sum(not one for one in mine)} | {sum(map(len, mine))} |")
    everything = [row["sides"] for row in measured]
    lines.append(f"| all | {len(everything)} | {sum(not one for one in everything)} | {sum(map(len, everything))} |")
    often = Counter(tuple(side) for row in measured for side in row["sides"])
    lines += ["", "What most models leave:", ""]
    lines += [f"- {place}, the side where {side}: {n}" for (place, side), n in often.most_common(_NAMED)]
    left = [row for row in rows if "sides" not in row]
    lines += ["", "No answer:", ""] if left else []
    return "\n".join([*lines, *(f"- {r['family']}/{r['case']}: {r.get('reason')}" for r in left)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="*", default=families.families())
    parser.add_argument("--only", default="")
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    forked.warmed()
    record = RESULTS / "covered.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    known = {(row["family"], row["case"]): row for row in map(json.loads, lines)}
    for name, _, every in (one.partition("=") for one in asked.families):
        for case in list(families.family(name).CASES)[:: int(every or 1)]:
            if asked.only not in case or (asked.resume and (name, case) in known):
                continue
            answer = forked.run(lambda n=name, c=case: _job(n, c), LIMIT)  # type: ignore[misc]
            known[name, case] = {"family": name, "case": case, **answer}
            record.write_text("".join(json.dumps(row) + "\n" for row in known.values()))
            print(name, case, answer.get("sides", answer.get("reason")), flush=True)
    (RESULTS / "covered.md").write_text(table(list(known.values())))


if __name__ == "__main__":
    main()
