"""How many models of a family export right: model × export example × exporter × {without, with the kit}.

usage: python -m benchmarks.coverage [--family vit_pytorch] [--only NAME|NAME] [--exporter dynamo] [--kit plain,export]
       python -m benchmarks.coverage --kit export,auto [--into attempts]
       python -m benchmarks.coverage --dry [--family text_encoders]

Prints a Markdown table and, for a whole family, writes it to benchmarks/results/coverage_<family>.md. The answers are
kept in a JSONL file beside it; ``--resume`` measures only what that file lacks. ``--dry`` exports nothing: it builds
the cases and runs eager at all their inputs. Without ``--family``: every family, most of a day on two cores. Models
whose native size is not the example are exported from both (``--example own,native``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from benchmarks import forked, torchvision_ops
from benchmarks.case import NATIVE, Case, build, families, family
from benchmarks.dry import run_eager
from benchmarks.measure import AUTO, EXPORTERS, KITS, NARROW, measure
from benchmarks.quiet import quiet
from benchmarks.tables import Answer, document

RESULTS = Path(__file__).parent / "results"
# What to load once, before the first fork, of the distributions that are slow to load.
PRELOADED = {
    "transformers": "transformers.modeling_utils",
    "diffusers": "diffusers",
    "kornia": "kornia",
    "monai": "monai.networks.nets",
    "open-clip-torch": "open_clip",
    "segmentation-models-pytorch": "segmentation_models_pytorch",
    "timm": "timm",
    "x-transformers": "x_transformers",
}
EXAMPLES = {"own": "", "native": NATIVE}


def answer(name: str, case: str, job: Callable[[Case], Answer]) -> Answer:
    """Build one case and do the job with it; runs in a child process."""
    torch.set_num_threads(1)
    made = build(name, case)
    if made is None:
        return {"verdict": "same", "reason": "the example has the native size already"}
    return {**job(made), "native": made.native is not None}


def warm_up(libraries: Sequence[str] = ()) -> None:
    """Load what every export needs before the first fork, and a family's libraries."""
    import onnxruntime  # noqa: F401

    for library in PRELOADED.keys() & set(libraries):
        importlib.import_module(PRELOADED[library])

    with torch.no_grad():
        torch.onnx.export(torch.nn.Linear(2, 2), (torch.randn(3, 2),), dynamo=True, verbose=False)


def asked_cases(name: str, options: argparse.Namespace) -> list[str]:
    """The cases to measure, those exported from the native size behind their own."""
    endings = [EXAMPLES[example] for example in options.example.split(",")]
    wanted = options.only.split("|")
    cases = list(family(name).CASES)[:: options.every]
    return [case + end for case in cases for end in endings if any(part in case for part in wanted)]


def gather(name: str, options: argparse.Namespace, record: Path) -> Iterator[Answer]:
    """Every (case, exporter, kit) asked for, from ``record`` where it has them and ``--resume`` was given."""
    known = [json.loads(line) for line in record.read_text().splitlines()] if options.resume and record.exists() else []
    have = {(a["case"], a["exporter"], a["kit"]): a for a in known}
    exporters, kits = options.exporter.split(","), options.kit.split(",")
    alone: set[str] = set()  # what would be exported from the same example again
    with record.open("a" if options.resume else "w") as out:
        for key in dict.fromkeys(
            (c, AUTO if k in (AUTO, NARROW) else e, k)
            for c in asked_cases(name, options)
            for e in exporters
            for k in kits
        ):
            if key[0] in alone:
                continue
            if key not in have and (made := first_attempt(have, key)):
                have[key] = made
                out.write(json.dumps(made) + "\n")
            if key not in have:
                job = lambda made, key=key: measure(made, *key[1:], openvino=options.openvino).as_dict()  # noqa: E731
                result = forked.run(lambda key=key, job=job: answer(name, key[0], job), options.limit)
                have[key] = {"case": key[0], "exporter": key[1], "kit": key[2], **result}
                out.write(json.dumps(have[key]) + "\n")
                out.flush()
            if have[key].get("native") is False and not key[0].endswith(NATIVE):
                alone.add(key[0] + NATIVE)
            if have[key]["verdict"] == "same":
                alone.add(key[0])
                continue
            yield have[key]
            say(have[key]["verdict"], f"{key[1]:7s} {key[2]:8s}", key[0], have[key]["reason"])


def first_attempt(have: dict[tuple[str, str, str], Answer], key: tuple[str, str, str]) -> Answer | None:
    """What needs no export of its own: all attempts where the first is right, and bounds where none are needed.

    The first attempt is the call of kit "export", with dynamo of all; bounds="narrow" comes after all attempts.
    """
    earlier = {
        "default": (key[1], "export"),
        "declared": (key[1], "default"),
        AUTO: ("dynamo", "export"),
        NARROW: (AUTO, AUTO),
    }.get(key[2])
    found = have.get((key[0], *earlier)) if earlier else None
    return {**found, "exporter": key[1], "kit": key[2]} if found and found["verdict"] == "right" else None


def say(verdict: str, column: str, case: str, reason: str) -> None:
    print(f"{verdict:8s} {column} {case:36s} {reason[:140]}", file=sys.stderr)


def dry(name: str, options: argparse.Namespace) -> bool:
    """Whether eager runs every case of a family, the same way twice, at all its inputs."""
    found: dict[str, Answer] = {}
    for case in asked_cases(name, options):
        if found.get(case.removesuffix(NATIVE), {}).get("native") is False:
            continue
        try:
            found[case] = answer(name, case, run_eager)
        except Exception as error:
            found[case] = {"verdict": "broken", "reason": f"{type(error).__name__}: {error}"[:300], "native": False}
        say(found[case]["verdict"], f"{found[case].get('seconds', 0):5.1f} s", case, found[case]["reason"])
    verdicts = [one["verdict"] for one in found.values()]
    print(f"{name}: {verdicts.count('runs')} cases run, {verdicts.count('broken')} do not")
    return "broken" not in verdicts


def read(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", help=f"of {', '.join(families())}, separated by commas; all unless given")
    parser.add_argument("--only", default="", help="parts of case names, separated by |")
    parser.add_argument("--every", type=int, default=1, help="a sample: every third case of a family with 3")
    parser.add_argument("--exporter", default=",".join(EXPORTERS))
    parser.add_argument("--kit", default="plain,patched,export,branches", help=f"of {', '.join(KITS)}")
    parser.add_argument("--example", default="own,native", help="what to export from: own, native")
    parser.add_argument("--openvino", action="store_true", help="judge the files that are right in OpenVINO, too")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one export")
    parser.add_argument("--into", default="coverage", help="what the names of the files written begin with")
    parser.add_argument("--answers", type=Path, help="where the JSONL files of single answers are kept")
    parser.add_argument("--resume", action="store_true", help="measure only what the answers lack")
    parser.add_argument("--dry", action="store_true", help="build the cases and run eager, no more")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    asked = read(argv)
    quiet()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HF_HUB_OFFLINE"] = "1"  # a case that would download weights fails instead
    torchvision_ops.declare()
    chosen = asked.family.split(",") if asked.family else families()
    if asked.dry:
        sys.exit(0 if all([dry(name, asked) for name in chosen]) else 1)
    RESULTS.mkdir(exist_ok=True)
    for name in chosen:
        warm_up(family(name).LIBRARIES)
        found = list(gather(name, asked, (asked.answers or RESULTS) / f"{asked.into}_{name}.jsonl"))
        text = document(name, found, asked.only, asked.every)
        print(text)
        whole = not asked.only and asked.every == 1
        if whole or asked.into != "coverage":
            (RESULTS / f"{asked.into}_{name}.md").write_text(text)


if __name__ == "__main__":
    main()
