"""Each patch's primitive at 1,000, 10,000 and 100,000 elements: time and peak memory, eager and plain export beside it.

usage: python -m benchmarks.primitives [--only searchsorted] [--exporters dynamo trace] [--rounds 15]

A file is exported from a small example and run on all sizes. Each arm runs alone first, in a forked child, for its
answer and its peak memory; it is stopped at a bound of memory and of time, and the table says so. What came through is
timed in one child: thread CPU time, arms in random order, medians. Eager's line has microseconds; those of plain and
the kit have the ratio to eager, and the most memory of a run, its result and onnxruntime's own included. "wrong": an
answer that is not eager's, with its largest error, unless eager in float64 is as far from it. The last column has the
day and the versions of torch and onnxruntime: with --only, the other lines of the page stay.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import random
import resource
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import onnxpatch
from benchmarks import forked, torchvision_ops
from benchmarks.measure import tensors
from benchmarks.primitive_cases import CASES, SIZES, Primitive
from benchmarks.quiet import quiet

MEMORY = 3 * 1024**3  # bytes of address space beyond what the child starts with
SECONDS = 30  # of processor time of one run
WAIT = 600  # seconds for a child to answer: a busy machine is no reason to lose a line
QUICK = 0.1  # seconds of one run, beyond which it is not repeated
RESULTS = Path(__file__).parent / "results" / "primitives.md"
ARMS = ("eager", "plain", "kit")
Files = dict[str, Path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--exporters", nargs="*", default=["trace", "dynamo"])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    torchvision_ops.declare()
    onnxruntime.set_default_logger_severity(4)
    chosen = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    for case in chosen:
        for exporter in options.exporters:
            lines = list(measured(case, exporter, options.rounds))
            print("\n".join(lines), flush=True)
            write(lines)


def write(lines: list[str]) -> None:
    """The page with these lines, and those of an earlier run for everything else."""
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = {row(line): line for line in (*before, *lines) if line.startswith("| ")}
    order = [(case.name, exporter, arm) for case in CASES for exporter in ("trace", "dynamo") for arm in ARMS]
    sizes = " | ".join(f"{n:,}" for n in SIZES)
    head = [f"| primitive | exporter | arm | nodes | {sizes} | measured |", "|---" * 8 + "|"]
    table = [*head, *(rows[one] for one in order if one in rows)]
    about = (__doc__ or "").split("\n\n")[2]
    left = dict.fromkeys(f"{name} ({exporter})" for name, exporter, arm in order if (name, exporter, arm) not in rows)
    notes = [f"Not measured yet: {'; '.join(left)}.", ""] if left else []
    RESULTS.write_text("\n".join(["# Primitives", "", about, "", *table, "", *notes]))


def row(line: str) -> tuple[str, ...]:
    """The first three cells of a line."""
    return tuple(cell.strip() for cell in line.split("|")[1:4])


def measured(case: Primitive, exporter: str, rounds: int) -> Iterator[str]:
    """The lines of one primitive: eager, plain and with the kit, at each size."""
    with tempfile.TemporaryDirectory() as folder:
        made = {kit: Path(folder) / f"{kit}.onnx" for kit in ("plain", "kit")}
        exports = {kit: export(case, exporter, kit, path) for kit, path in made.items()}
        arms = {kit: path for kit, path in made.items() if path.exists()}
        cells: dict[str, list[str]] = {arm: [] for arm in ARMS}
        for n in SIZES:
            found = at_size(case, n, arms, rounds)
            for arm in ARMS:
                cells[arm].append(found.get(arm, ""))
        when = f"{datetime.date.today()}: {metadata.version('torch').split('+')[0]}, {metadata.version('onnxruntime')}"
        yield f"| {case.name} | {exporter} | eager | | {' | '.join(cells['eager'])} | {when} |"
        for kit in made:
            shown = " | ".join(cells[kit]) if kit in arms else exports[kit]["reason"][:60].replace("|", "/") + " | |"
            yield f"| {case.name} | {exporter} | {kit} | {exports[kit].get('nodes', '')} | {shown} | {when} |"


def at_size(case: Primitive, n: int, arms: Files, rounds: int) -> dict[str, str]:
    alone = {kit: forked.run(functools.partial(run_alone, case, n, path), WAIT) for kit, path in arms.items()}
    quick = {kit: path for kit, path in arms.items() if alone[kit].get("seconds", SECONDS) < QUICK}
    times = forked.run(functools.partial(timed, case, n, quick, rounds), WAIT)
    found = {kit: cell(kit, alone[kit], times) for kit in arms}
    return {"eager": f"{times['eager'] * 1e6:,.0f} µs", **found}


def cell(kit: str, alone: dict[str, Any], times: dict[str, Any]) -> str:
    """`2.1 x, 34 MB`, or what ended the run."""
    if "error" not in alone:
        return alone.get("reason", "died")[:40]
    wrong = "" if alone["error"] <= max(1e-3, 2 * alone["own"]) else f", **wrong: {alone['error']:.0e}**"
    found = times.get(kit, alone["seconds"])
    once = "" if kit in times else " (once)"
    return f"{found / times['eager']:.1f} x{once}, {alone['megabytes']:.0f} MB{wrong}"


def export(case: Primitive, exporter: str, kit: str, path: Path) -> dict[str, Any]:
    """Write the file in a child; the answer has its nodes, or the reason why there is none."""

    def job() -> dict[str, Any]:
        model, args = case.build().eval(), case.arguments(case.example)
        scope: Any = onnxpatch.patched(model, exporter=exporter) if kit == "kit" else contextlib.nullcontext()
        names = [f"in{i}" for i in range(len(args))]
        with scope, torch.no_grad():
            write_model(model, args, exporter, case.dynamic, names, path)
        import onnx

        return {"nodes": sum(node.op_type != "Constant" for node in onnx.load(path).graph.node)}

    return forked.run(job, WAIT)


def write_model(model: torch.nn.Module, args: Any, exporter: str, dynamic: Any, names: list[str], path: Path) -> None:
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
        own = own_error(case, n, want)
    run = prepared(case, n, path)
    bounded()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    got = run()
    seconds = time.thread_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": (peak - before) / 1024, "error": max(map(error, got, want)), "own": own}


def own_error(case: Primitive, n: int, found: list[torch.Tensor]) -> float:
    """How far eager is from itself in float64; 0 where it does not run so."""
    with contextlib.suppress(Exception):
        args = [x.double() if x.is_floating_point() else x for x in case.arguments(n)]
        wide = tensors(case.build().eval().double()(*args))
        return max(error(x.numpy(), y) for x, y in zip(found, wide, strict=True))
    return 0.0


def bounded() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)


def error(got: np.ndarray, want: torch.Tensor) -> float:
    if got.shape != tuple(want.shape):
        return float("inf")
    mine, eager = torch.from_numpy(np.asarray(got)).double(), want.double()
    apart = (mine - eager).abs()[(mine != eager) & ~(mine.isnan() & eager.isnan())]
    return float(apart.max() / eager[eager.isfinite()].abs().max().clamp(min=1e-6)) if apart.numel() else 0.0


def timed(
    case: Primitive, n: int, arms: Files, rounds: int, of: Callable[[list[float]], float] = statistics.median
) -> dict[str, Any]:
    """Seconds of thread CPU time of eager and every arm: the median, or another choice of the rounds."""
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
    return {name: of(each) for name, each in times.items()}


if __name__ == "__main__":
    main()
