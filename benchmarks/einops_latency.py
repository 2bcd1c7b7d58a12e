"""Latency of einops operations in onnxruntime: the kit's dynamo export against the plain one.

usage: python -m benchmarks.einops_latency [--rounds 300]

onnxruntime on the CPU, one thread; the two graphs take turns, and the median of the thread's processor time counts.
Both are held against eager first. Prints a Markdown table and writes it to benchmarks/results/einops_latency.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import onnxpatch
from benchmarks.einops_cases import TIMED, Timed
from benchmarks.einops_nodes import exported, nodes, versions
from benchmarks.quiet import quiet

RESULTS = Path(__file__).parent / "results" / "einops_latency.md"


def session(file: bytes) -> onnxruntime.InferenceSession:
    """The graph on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def medians(sessions: list[onnxruntime.InferenceSession], x: np.ndarray, rounds: int) -> list[float]:
    """Median microseconds of each session, run in turns."""
    times: list[list[float]] = [[] for _ in sessions]
    for turn in range(rounds + 5):
        for place, run in enumerate(sessions):
            began = time.thread_time()
            run.run(None, {"x_in": x})
            if turn >= 5:
                times[place].append(1e6 * (time.thread_time() - began))
    return [statistics.median(each) for each in times]


def files(case: Timed, shape: tuple[int, ...]) -> list[bytes]:
    """[plain, with the kit], both dynamo exports of an example of this shape."""
    model, x = case.build().eval(), torch.randn(shape)
    plain = exported(model, x, case.dynamic, "dynamo")
    with onnxpatch.patched(model, exporter="dynamo"):
        return [plain, exported(model, x, case.dynamic, "dynamo")]


def row(case: Timed, rounds: int) -> str:
    """One line of the table."""
    cells = []
    for shape in (case.small, case.large):
        made = files(case, shape)
        sessions = [session(file) for file in made]
        x = torch.randn(shape)
        want = case.build()(x).detach().numpy()
        for run in sessions:
            np.testing.assert_allclose(run.run(None, {"x_in": x.numpy()})[0], want, rtol=1e-4, atol=1e-5)
        plain, kit = medians(sessions, x.numpy(), rounds if x.numel() < 1e5 else max(rounds // 4, 20))
        cells.append(f"{'×'.join(map(str, shape))}: {plain:.0f} → {kit:.0f} µs, **{kit / plain:.2f}**")
    limit = "" if case.limit is None else f"≤ {case.limit}"
    return f"| {case.name} | {nodes(made[0])} → {nodes(made[1])} | {cells[0]} | {cells[1]} | {limit} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", default="", help="part of a name; writes no file")
    options = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    rows = [row(case, options.rounds) for case in TIMED if options.only in case.name]
    text = "\n".join(
        [
            "# Latency of einops operations in onnxruntime",
            f"{versions()}; CPU, one thread, taking turns, median; dynamo export, plain → with the kit;"
            " made by `python -m benchmarks.einops_latency`.",
            "",
            "| operation | nodes | small | large | aim |",
            "|---|--:|---|---|---|",
            *rows,
            "",
        ]
    )
    if not options.only:
        RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
