"""Each patch's primitive at 1,000, 10,000 and 100,000 elements: time and peak memory, eager and plain export beside it.

usage: python -m benchmarks.primitives [--only searchsorted] [--exporters dynamo trace] [--rounds 15]

A file is exported from a small example and run on all sizes. Each arm runs alone first, in a forked child, for its
answer and its peak memory; it is stopped at a bound of memory and of time, and the table says so. What came through is
timed in one child: thread CPU time, arms in random order, medians. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import random
import resource
import signal
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import onnxpatch
from benchmarks import forked, torchvision_ops
from benchmarks.measure import tensors
from benchmarks.primitive_cases import CASES, SIZES, Primitive

MEMORY = 3 * 1024**3  # bytes of address space beyond what the child starts with
SECONDS = 10
QUICK = 0.1  # seconds of one run, beyond which it is not repeated
EXPORT_SECONDS = 180
RESULTS = Path(__file__).parent / "results" / "primitives.md"
Arms = dict[str, Path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names; writes no file")
    parser.add_argument("--exporters", nargs="*", default=["trace", "dynamo"])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torchvision_ops.declare()
    onnxruntime.set_default_logger_severity(4)
    chosen = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    lines = ["| primitive | exporter | arm | nodes | " + " | ".join(f"{n:,}" for n in SIZES) + " |", "|---" * 7 + "|"]
    print("\n".join(lines), flush=True)
    for case in chosen:
        for exporter in options.exporters:
            for line in measured(case, exporter, options.rounds):
                print(line, flush=True)
                lines.append(line)
    if not options.only:
        RESULTS.write_text("\n".join(["# Primitives", (__doc__ or "").split("\n\n")[2], "", *lines, ""]))


def measured(case: Primitive, exporter: str, rounds: int) -> Iterator[str]:
    """The lines of one primitive: plain and with the kit, ratios to eager and memory at each size."""
    with tempfile.TemporaryDirectory() as folder:
        made = {kit: Path(folder) / f"{kit}.onnx" for kit in ("plain", "kit")}
        exports = {kit: export(case, exporter, kit, path) for kit, path in made.items()}
        arms = {kit: path for kit, path in made.items() if path.exists()}
        cells: dict[str, list[str]] = {kit: [] for kit in made}
        for n in SIZES:
            found = at_size(case, n, arms, rounds)
            for kit in made:
                cells[kit].append(found.get(kit, ""))
        for kit in made:
            shown = " | ".join(cells[kit]) if kit in arms else exports[kit]["reason"][:60].replace("|", "/") + " | | "
            yield f"| {case.name} | {exporter} | {kit} | {exports[kit].get('nodes', '')} | {shown} |"


def at_size(case: Primitive, n: int, arms: Arms, rounds: int) -> dict[str, str]:
    alone = {kit: forked.run(functools.partial(run_alone, case, n, path), 3 * SECONDS) for kit, path in arms.items()}
    quick = {kit: path for kit, path in arms.items() if alone[kit].get("seconds", SECONDS) < QUICK}
    times = forked.run(functools.partial(timed, case, n, quick, rounds), 10 * SECONDS)
    return {kit: cell(kit, alone[kit], times) for kit in arms}


def cell(kit: str, alone: dict[str, Any], times: dict[str, Any]) -> str:
    """`2.1 x, 34 MB`, or what ended the run."""
    if "error" not in alone:
        return alone.get("reason", "died")[:40]
    wrong = "" if alone["error"] <= 1e-3 else f", **wrong: {alone['error']:.0e}**"
    eager = times["eager"]
    found = times.get(kit, alone["seconds"])
    once = "" if kit in times else " (once)"
    return f"{found / eager:.1f} x{once}, {alone['megabytes']:.0f} MB{wrong}"


def export(case: Primitive, exporter: str, kit: str, path: Path) -> dict[str, Any]:
    """Write the file in a child; the answer has its nodes, or the reason why there is none."""

    def job() -> dict[str, Any]:
        model, args = case.build().eval(), case.arguments(case.example)
        scope: Any = onnxpatch.patched(model, exporter=exporter) if kit == "kit" else contextlib.nullcontext()
        names = [f"in{i}" for i in range(len(args))]
        with scope, torch.no_grad():
            _export(model, args, exporter, case.dynamic, names, path)
        import onnx

        return {"nodes": sum(node.op_type != "Constant" for node in onnx.load(path).graph.node)}

    return forked.run(job, EXPORT_SECONDS)


def _export(model: torch.nn.Module, args: Any, exporter: str, dynamic: Any, names: list[str], path: Path) -> None:
    if exporter == "dynamo":
        torch.onnx.export(
            model, args, path, dynamo=True, dynamic_shapes=dynamic, input_names=names, external_data=False,
            verbose=False, opset_version=18,
        )  # fmt: skip
        return
    axes = {name: shape for name, shape in zip(names, dynamic, strict=True) if shape}
    torch.onnx.export(model, args, str(path), dynamo=False, dynamic_axes=axes, input_names=names, opset_version=18)


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def prepared(case: Primitive, n: int, path: Path) -> Callable[[], Any]:
    run, args = session(path), case.arguments(n)
    known = {node.name for node in run.get_inputs()}
    feed = {f"in{i}": value.numpy() for i, value in enumerate(args) if f"in{i}" in known}
    return lambda: run.run(None, feed)


def run_alone(case: Primitive, n: int, path: Path) -> dict[str, Any]:
    """One run: seconds of CPU, the most memory beyond what was there before, and the largest relative error."""
    with torch.no_grad():
        want = tensors(case.build().eval()(*case.arguments(n)))
    run = prepared(case, n, path)
    bounded()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    got = run()
    seconds = time.thread_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": (peak - before) / 1024, "error": max(map(error, got, want))}


def bounded() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 3 * SECONDS)


def error(got: np.ndarray, want: torch.Tensor) -> float:
    if got.shape != tuple(want.shape):
        return float("inf")
    mine, eager = torch.from_numpy(np.asarray(got)).double(), want.double()
    apart = (mine - eager).abs()[mine != eager]
    return float(apart.max() / eager[eager.isfinite()].abs().max().clamp(min=1e-6)) if apart.numel() else 0.0


def timed(case: Primitive, n: int, arms: Arms, rounds: int) -> dict[str, Any]:
    """Median seconds of thread CPU time of eager and every arm."""
    model, args = case.build().eval(), case.arguments(n)
    runs: dict[str, Callable[[], Any]] = {"eager": lambda: model(*args)}
    runs |= {kit: prepared(case, n, path) for kit, path in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    with torch.no_grad():
        for turn in range(rounds + 2):
            random.shuffle(order)
            for name in order:
                began = time.thread_time()
                runs[name]()
                if turn > 1:
                    times[name].append(time.thread_time() - began)
    return {name: statistics.median(each) for name, each in times.items()}


if __name__ == "__main__":
    main()
