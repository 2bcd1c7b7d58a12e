"""Which proofs of the patches hold in this environment, one JSON line each.

usage: python -m benchmarks.proofs --into FILE.jsonl [--environment NAME] [--only NAME|NAME] [--exporter trace,dynamo]
       python -m benchmarks.proofs --into FILE.jsonl --runtime openvino
       python -m benchmarks.proofs --into FILE.jsonl --dtype float16
       python -m benchmarks.proofs --into FILE.jsonl --opset 21
       python -m benchmarks.proofs --into FILE.jsonl --device cuda [--providers CUDAExecutionProvider] [--part 3/8]

The first line says what the environment is: its name, the date, and the version of each library. `--resume` runs only
what the file lacks. Each proof runs in a child of its own, so that one that crashes, or that leaves torch in another
state, does not reach the others. `python -m benchmarks.matrix_table` makes the table of several such files.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked, torchvision_ops
from benchmarks.quiet import quiet
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.prove import prove, prove_under


def environment(name: str) -> dict[str, Any]:
    """What this environment is made of."""
    return {
        "environment": name,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "versions": {"torch": str(torch.__version__), **{k: v for k, v in versions().items() if k != "torch"}},
        "not loaded": onnxpatch.REGISTRY.failures,
    }


def asked_proofs(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """(patch, exporter) of every proof that was asked for."""
    parts, exporters = options.only.split("|"), options.exporter.split(",")
    which, of = map(int, options.part.split("/"))
    wanted = [
        (patch.name, exporter)
        for patch in onnxpatch.REGISTRY
        for exporter in (patch.proof.served() if patch.proof else ())
        if exporter in exporters and any(part in patch.name for part in parts)
    ]
    yield from wanted[which - 1 :: of]


def judged(name: str, exporter: str, options: argparse.Namespace) -> dict[str, Any]:
    """What one proof shows; runs in a child process."""
    torch.set_num_threads(1)
    start = time.process_time()
    patch, runtime = onnxpatch.REGISTRY[name], options.runtime
    if options.dtype or options.opset or options.device or options.providers:
        dtype = getattr(torch, options.dtype) if options.dtype else None
        outcome = prove_under(
            patch, exporter, opset=options.opset, dtype=dtype, device=options.device, runtime=runtime,
            providers=options.providers and options.providers.split(","),
        )  # fmt: skip
    else:
        outcome = prove(patch, exporter, runtime)
    reason = outcome.sentence.replace(f"{os.getcwd()}/", "")[:600]
    return {"status": outcome.status, "reason": reason, "seconds": round(time.process_time() - start)}


def answer(name: str, exporter: str, options: argparse.Namespace) -> dict[str, Any]:
    """The line of one proof. A crash, an error and a run past the limit are failures."""
    found = forked.run(lambda: judged(name, exporter, options), options.limit)
    if "status" not in found:
        found = {"status": "failed", "reason": found["reason"]}
    return {"patch": name, "exporter": exporter, **found}


def warm_up() -> None:
    """Load what every proof needs, before the first fork."""
    import onnxruntime  # noqa: F401

    # An onnxscript that does not fit this torch has no dynamo exporter: the proofs under dynamo say so themselves.
    with torch.no_grad(), contextlib.suppress(Exception):
        torch.onnx.export(torch.nn.Linear(2, 2), (torch.randn(3, 2),), dynamo=True, verbose=False)


def read(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the JSONL file to write")
    parser.add_argument("--environment", default="here", help="its name in the table")
    parser.add_argument("--only", default="", help="parts of patch names, separated by |")
    parser.add_argument("--exporter", default="trace,script,dynamo")
    parser.add_argument("--runtime", help="what the files run in, instead of onnxruntime")
    parser.add_argument("--opset", type=int, help="the opset of the files, instead of each proof's own")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float64"), help="of model and inputs")
    parser.add_argument("--device", help="of model and inputs, such as cuda")
    parser.add_argument("--providers", help="onnxruntime's, that run the files, separated by commas")
    parser.add_argument("--part", default="1/1", help="which of how many parts of the proofs: 3/8")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one proof")
    parser.add_argument("--resume", action="store_true", help="run only what the file lacks")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    asked = read(argv)
    quiet()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torchvision_ops.declare()
    if not asked.device:  # a child of a process that has used a GPU cannot use it
        warm_up()
    lines = asked.into.read_text().splitlines() if asked.resume and asked.into.exists() else []
    have = {(one["patch"], one["exporter"]) for one in map(json.loads, lines[1:])}
    asked.into.parent.mkdir(parents=True, exist_ok=True)
    with asked.into.open("a" if lines else "w") as out:
        if not lines:
            out.write(json.dumps(environment(asked.environment)) + "\n")
        for name, exporter in asked_proofs(asked):
            if (name, exporter) in have:
                continue
            found = answer(name, exporter, asked)
            out.write(json.dumps(found) + "\n")
            out.flush()
            print(f"{found['status']:11s} {exporter:7s} {name:32s} {found['reason'][:120]}", file=sys.stderr)


if __name__ == "__main__":
    main()
