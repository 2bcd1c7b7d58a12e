"""How many models of a family export right: model × exporter × {without, with the kit}.

usage: python -m benchmarks.coverage [--family vit_pytorch] [--only NAME|NAME] [--exporter dynamo] [--kit plain,patched]

Prints a Markdown table and, for a whole family, writes it to benchmarks/results/coverage_<family>.md. The answers are
kept in a JSONL file beside it; ``--resume`` measures only what that file lacks. Without ``--family``: every family, a
few hours on two cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks import forked, torchvision_ops
from benchmarks.case import families, family
from benchmarks.measure import EXPORTERS, KITS, measure

RESULTS = Path(__file__).parent / "results"
LABEL = {
    "plain": "without",
    "patched": "with the kit",
    "static": "with the kit, static size",
    "export": "onnxpatch.export",
}
ALWAYS = ("torch", "onnx", "onnxscript", "onnxruntime", "einops")
SIGN = {"right": "right", "wrong": "**silently wrong**", "refused": "refused", "broken": "eager fails",
        "unsteady": "eager unsteady"}  # fmt: skip

Answer = dict[str, Any]


def answer(name: str, case: str, exporter: str, kit: str) -> Answer:
    """Build and measure one case; runs in a child process."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return measure(family(name).CASES[case](), exporter, kit).as_dict()


def warm_up() -> None:
    """Load what every export needs before the first fork."""
    import onnxruntime  # noqa: F401

    with torch.no_grad():
        torch.onnx.export(torch.nn.Linear(2, 2), (torch.randn(3, 2),), dynamo=True, verbose=False)


def gather(name: str, options: argparse.Namespace, record: Path) -> list[Answer]:
    """Every (case, exporter, kit) asked for, from ``record`` where it has them and ``--resume`` was given."""
    cases = [c for c in family(name).CASES if any(part in c for part in options.only.split("|"))]
    known = [json.loads(line) for line in record.read_text().splitlines()] if options.resume and record.exists() else []
    have = {(a["case"], a["exporter"], a["kit"]): a for a in known}
    found: list[Answer] = []
    with record.open("a" if options.resume else "w") as out:
        for key in [(c, e, k) for c in cases for e in options.exporter.split(",") for k in options.kit.split(",")]:
            if key not in have:
                result = forked.run(lambda key=key: answer(name, *key), options.limit)
                have[key] = {"case": key[0], "exporter": key[1], "kit": key[2], **result}
                out.write(json.dumps(have[key]) + "\n")
                out.flush()
            found.append(have[key])
            print(
                f"{have[key]['verdict']:8s} {key[1]:7s} {key[2]:8s} {key[0]:36s} {have[key]['reason'][:140]}",
                file=sys.stderr,
            )
    return found


def versions(name: str) -> str:
    return ", ".join(f"{d} {metadata.version(d)}" for d in dict.fromkeys((*ALWAYS, *family(name).LIBRARIES)))


def totals(found: list[Answer]) -> list[str]:
    """One row per exporter and kit: how many are right, silently wrong, refused."""
    shown = {"right": "right", "wrong": "silently wrong", "refused": "refused"}
    if any(a["verdict"] == "unsteady" for a in found):
        shown["unsteady"] = "eager unsteady"
    lines = [f"| exporter | | {' | '.join(shown.values())} | models |", "|---" * (len(shown) + 3) + "|"]
    for exporter, kit in dict.fromkeys((a["exporter"], a["kit"]) for a in found):
        mine = [a["verdict"] for a in found if (a["exporter"], a["kit"]) == (exporter, kit)]
        counts = " | ".join(str(mine.count(verdict)) for verdict in shown)
        lines.append(f"| {exporter} | {LABEL[kit]} | {counts} | {len(mine)} |")
    return lines


def details(found: list[Answer]) -> list[str]:
    """One row per model, one column per exporter and kit."""
    columns = list(dict.fromkeys((a["exporter"], a["kit"]) for a in found))
    verdicts = {(a["case"], a["exporter"], a["kit"]): SIGN[a["verdict"]] for a in found}
    lines = [
        "| model | " + " | ".join(f"{e}, {LABEL[k]}" for e, k in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for case in dict.fromkeys(a["case"] for a in found):
        lines.append(f"| {case} | " + " | ".join(verdicts.get((case, *column), "") for column in columns) + " |")
    return lines


def reasons(found: list[Answer]) -> list[str]:
    """Why what the kit was asked for is still not right."""
    left = [a for a in found if a["kit"] != "plain" and a["verdict"] != "right"]
    return [f"- {a['case']}, {a['exporter']}: {a['verdict']}: {a['reason'][:140]}" for a in left]


def document(name: str, found: list[Answer]) -> str:
    parts = [f"# Coverage: {name}", "", f"Versions: {versions(name)}.", "", *totals(found), "", *details(found)]
    left_out = getattr(family(name), "LEFT_OUT", {})
    if left := reasons(found):
        parts += ["", "## Not right with the kit", "", *left]
    if left_out:
        parts += ["", "## Left out", "", *(f"- {what}: {why}" for what, why in left_out.items())]
    return "\n".join(parts) + "\n"


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=families(), help="all families unless given")
    parser.add_argument("--only", default="", help="parts of case names, separated by |")
    parser.add_argument("--exporter", default=",".join(EXPORTERS))
    parser.add_argument("--kit", default="plain,patched", help=f"of {', '.join(KITS)}")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one export")
    parser.add_argument("--answers", type=Path, help="where the JSONL files of single answers are kept")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    asked = options(argv)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torchvision_ops.declare()
    warm_up()
    RESULTS.mkdir(exist_ok=True)
    for name in [asked.family] if asked.family else families():
        found = gather(name, asked, (asked.answers or RESULTS) / f"coverage_{name}.jsonl")
        text = document(name, found)
        print(text)
        if not asked.only:
            (RESULTS / f"coverage_{name}.md").write_text(text)


if __name__ == "__main__":
    main()
