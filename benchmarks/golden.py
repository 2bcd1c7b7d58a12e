"""The golden record: what the kit makes of every proof and of sixty whole models, so that a change shows its reach.

usage: python -m benchmarks.golden [PART] [--only NAME|NAME] [--every 10]    compare, and name what differs
       python -m benchmarks.golden PART --accept [--missing]                 write what is made now; only what is new
       python -m benchmarks.golden PART --only NAME --show                   print node lists, to compare two trees

Parts: trace (the proofs under the TorchScript exporter, two minutes; the default), dynamo (half an hour), script,
models (both exporters, opset 18 and 23; an hour). One line for each is committed under tests/golden: a digest of the
node list (operators, attributes, dtypes and shapes) and how often each operator occurs, the patches that acted, the
verdict and what was found. A proof is exported with its own patch alone, and those that it needs. Random numbers are
seeded, and an export's budget counts work, so that the record is the same on every machine with the same versions.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import torch

import onnxpatch
from benchmarks import forked, torchvision_ops
from benchmarks.case import build
from benchmarks.coverage import warm_up
from benchmarks.golden_models import MODELS
from benchmarks.node_list import NodeList, digest
from benchmarks.quiet import quiet
from onnxpatch.errors import OnnxpatchError
from onnxpatch.onnxfile.metadata import versions as installed

RECORD = Path(__file__).parents[1] / "tests" / "golden"
PARTS = ("trace", "dynamo", "script", "models")
LIMIT = 600.0  # seconds of one case
SEED = 0
Line = dict[str, Any]
Key = tuple[str, str, int]  # name, exporter, opset


def keys(part: str) -> list[Key]:
    """What a part records, in the order of its file."""
    if part == "models":
        return [(name, exporter, opset) for name in MODELS for exporter in ("trace", "dynamo") for opset in (18, 23)]
    return [
        (patch.name, part, patch.proof.opset)
        for patch in onnxpatch.REGISTRY
        if patch.proof and part in patch.proof.served()
    ]


def made(key: Key, show: bool = False) -> Line:
    """The line of one proof or model; runs in a child process."""
    torch.set_num_threads(1)
    name, exporter, opset = key
    torch.manual_seed(SEED)
    if "/" in name:
        case = build(*name.split("/", 1))
        assert case is not None, f"{name} has no case of its own"
        model, inputs, shapes, only = case.model.eval(), case.inputs, case.dynamic_shapes, None
    else:
        proof = onnxpatch.REGISTRY[name].proof
        assert proof is not None
        model, inputs = proof.build().eval(), proof.examples()
        shapes = proof.specs(inputs)
        only = [name, *proof.beside]
    asked = {"exporter": exporter, "opset_version": opset, "dynamic_shapes": shapes, "only": only, "progress": False}
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/model.onnx"
        torch.manual_seed(SEED)
        found: Line = {}
        try:
            report = onnxpatch.export(model, inputs[0], file, data=inputs[1:], attempts="asked", **asked)
        except OnnxpatchError as error:
            report = getattr(error, "report", None)
            if report is None:
                return {"verdict": "refused", "findings": [_plain(str(error))]}
            # A wrong file is not left behind: made again, so that its nodes can be told.
            torch.manual_seed(SEED)
            onnxpatch.export(model, inputs[0], file, check=False, **asked)
        nodes = NodeList(onnx.load(file))
        found |= {"nodes": nodes.all, "order": nodes.order, "operators": nodes.histogram}
    found["patches"] = sorted({one["patch"] for one in report.plan})
    found |= {"verdict": report.verdict, "findings": findings(report), "probes": probes(report)}
    return {**found, "lines": nodes.lines} if show else found


def findings(report: onnxpatch.Report) -> list[str]:
    """What the report says beside its verdict, without lines of the source and values of weights."""
    first = report.first_wrong()
    found = [f"{first.status} at {first.label}"] if first else []
    found += [f"frozen {one.dimension} {one.op}" for one in report.frozen]
    found += [f"guard {one.expression}{' harmful' if one.harmful else ''}" for one in report.guards]
    found += [f"unproven {one.dimension}: {one.reason}" for one in report.unproven]
    found += [f"right within {one.dimension}: {one.declare}" for one in report.right_within]
    found += [f"bounds {name}: {bound}" for name, bound in report.bounds.items()]
    return [_plain(one) for one in (*found, *report.notes)]


def probes(report: onnxpatch.Report) -> str:
    """How many inputs of each kind were compared, and a digest of which: `example 1, size 15; 3f2a…`."""
    kinds = [check.kind for check in report.checks]
    counts = ", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds)))
    return f"{counts}; {digest(f'{check.label} {check.status}' for check in report.checks)}"


def _plain(text: str) -> str:
    """Without places in the source and addresses, which a change of other code moves."""
    text = re.sub(r"\S+\.py(:\d+|\", line \d+)", "FILE:LINE", text)
    return " ".join(re.sub(r"0x[0-9a-f]+|/tmp/\S+", "…", text).split())[:240]


def versions() -> Line:
    return {"versions": {"torch": str(torch.__version__), **installed()}}


# ---- the file


def stored(part: str) -> tuple[Line, dict[Key, Line]]:
    """The versions that a part was recorded with, and its lines."""
    file = RECORD / f"{part}.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else [{}]
    return lines[0], {(one.pop("of"), one.pop("exporter"), one.pop("opset")): one for one in lines[1:]}


def store(part: str, lines: dict[Key, Line]) -> None:
    """Write a part in its own order, without what is no longer there."""
    RECORD.mkdir(exist_ok=True)
    body = [{"of": key[0], "exporter": key[1], "opset": key[2], **lines[key]} for key in keys(part) if key in lines]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (versions(), *body))
    new = RECORD / f"{part}.jsonl.new"
    new.write_text(text, encoding="utf-8")
    new.replace(RECORD / f"{part}.jsonl")


def differences(before: Line, now: Line) -> Iterator[str]:
    """What of one line differs, in words."""
    for field in ("verdict", "patches", "findings", "probes"):
        if before.get(field) != now.get(field):
            yield f"{field}: {before.get(field)} → {now.get(field)}"
    if before.get("nodes") == now.get("nodes"):
        return
    old, new = (_counted(one.get("operators", "")) for one in (before, now))
    changed = [
        f"{name} {old.get(name, 0)} → {new.get(name, 0)}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]
    if changed:
        yield "nodes: " + ", ".join(changed)
    elif before.get("order") != now.get("order"):
        yield "nodes: the same operators in another order"
    else:
        yield "nodes: the same operators; attributes, constants, dtypes, shapes or connections differ (--show)"


def _counted(histogram: str) -> dict[str, str]:
    return dict(one.rsplit(" ", 1) for one in histogram.split(", ") if one)


# ---- the command


def asked_keys(options: argparse.Namespace) -> list[Key]:
    names = options.only.split("|")
    return [key for key in keys(options.part) if any(name in " ".join(map(str, key)) for name in names)][
        :: options.every
    ]


def run(options: argparse.Namespace, answer: Callable[[Key], Line]) -> int:
    """Compare or accept what was asked for; how many differ."""
    recorded, lines = stored(options.part)
    if not options.accept and recorded.get("versions") != versions()["versions"]:
        print(f"The record was made with {recorded.get('versions')}, here are {versions()['versions']}:")
    wanted, differ, start = asked_keys(options), 0, time.monotonic()
    for key in wanted:
        if options.accept and options.missing and key in lines:
            continue
        now = answer(key)
        name = f"{key[0]} ({key[1]}, opset {key[2]})"
        if options.show:
            print(name, *now.get("lines", [str(now)]), sep="\n")
            continue
        found = [*differences(lines[key], now)] if key in lines else ["not in the record"]
        differ += bool(found)
        if found:
            print(name, *found, sep="\n    ", flush=True)
        if options.accept:
            lines[key] = now
            store(options.part, lines)
    if not options.show:
        gone = [key for key in lines if key not in keys(options.part)]
        print(*(f"{key[0]} ({key[1]}, opset {key[2]}): only in the record" for key in gone), sep="\n", end="")
        differ += len(gone)
        print(f"{len(wanted)} of {options.part}, {differ} differ, {time.monotonic() - start:.0f} s")
    return differ


def read(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="trace", choices=PARTS)
    parser.add_argument("--only", default="", help="parts of names, separated by |")
    parser.add_argument("--every", type=int, default=1, help="a sample: every tenth with 10")
    parser.add_argument("--accept", action="store_true", help="write what is made now")
    parser.add_argument("--missing", action="store_true", help="with --accept: only what the record has not")
    parser.add_argument("--show", action="store_true", help="print the node lists, compare nothing")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    options = read(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # einops multiplies sizes in the order of a set of names, which Python draws anew for every process.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.golden", *(sys.argv[1:] if argv is None else argv)])
    quiet()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HF_HUB_OFFLINE"] = "1"
    torchvision_ops.declare()
    warm_up(("transformers", "timm"))
    # What an export loads when it first runs, before the first fork; the answer is nobody's.
    made(("symbolic-sqrt", "trace", 18))
    gc.freeze()
    differ = run(options, lambda key: forked.run(lambda: made(key, options.show), LIMIT))
    sys.exit(1 if differ and not options.accept else 0)


if __name__ == "__main__":
    main()
