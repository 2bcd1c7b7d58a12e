"""Whole models at real width: each arm's time in onnxruntime against the plain dynamo export.

usage: python -m benchmarks.whole_models [--only BERT Llama] [--rounds 15]

Every file is exported with dynamic sizes from a small example, and compared with eager before it is timed. One thread,
thread CPU time, arms in random order in every round; a cell is the median of the ratios to plain dynamo at opset 18 in
the same round, with quartiles. 1-D parameters are moved off 0 and 1, which folding tools would remove. "flushed":
denormals count as zero, as in `onnxpatch.Session`. The seconds of one export are thread CPU time too, in a process that
has exported before. Exports are kept under benchmarks/.exports until the sources that
made them change; models whose library is not installed are named below the table.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor

import onnxpatch
from benchmarks import torchvision_ops
from benchmarks.coverage import warm_up
from benchmarks.measure import deviation, tensors
from benchmarks.quiet import quiet
from benchmarks.whole_cases import CASES, Args, Whole
from onnxpatch.settings import Operators

KEPT = Path(__file__).parent / ".exports"
MODELS = Path(__file__).parent / "whole_cases.py"
KIT = [Path(onnxpatch.__file__).parent, Path(onnxpatch.__file__).parents[1] / "patches"]
RESULTS = Path(__file__).parent / "results" / "whole_models.md"
TOLERANCE = 1e-3
VERSIONS = ("torch", "onnx", "onnxscript", "onnxruntime", "transformers", "timm", "vit-pytorch", "torchvision")


@dataclass(frozen=True)
class Arm:
    """How a file is made and run. kit: None for torch.onnx.export alone, else the operators that it may use."""

    kit: Operators | None
    opset: int
    flushed: bool = False


BASE = "plain 18"
ARMS = {
    BASE: Arm(None, 18),
    "kit 18": Arm("portable", 18),
    "plain 23": Arm(None, 23),
    "kit 23": Arm("portable", 23),
    "kit 23, onnxruntime": Arm("onnxruntime", 23),
    "kit 23, onnxruntime, flushed": Arm("onnxruntime", 23, flushed=True),
}
Row = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[], help="parts of names: measures these alone, and replaces their lines"
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    torchvision_ops.declare()
    warm_up()
    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None, check=False)
    columns = [name for name in ARMS if name != BASE]
    head = f"| model | {BASE} | " + " | ".join(columns) + " | seconds of export: plain 18, kit 23 |"
    lines, missing = [head, "|---" * (len(columns) + 3) + "|"], []
    print("\n".join(lines), flush=True)
    for name, case in CASES.items():
        if options.only and not any(part in name for part in options.only):
            continue
        lacking = [library for library in case.needs if not installed(library)]
        if lacking:
            missing.append(f"{name}: {', '.join(lacking)} is not installed.")
            continue
        try:
            measured_lines = measured(name, case, options.rounds)
        except ImportError as error:  # a library that lacks one of its own
            missing.append(f"{name}: {error}.")
            continue
        for line in measured_lines:
            print(line, flush=True)
            lines.append(line)
        write(lines, missing)


def write(lines: list[str], missing: list[str]) -> None:
    """The page, written after each model. Models that this run did not measure keep their lines of an earlier one."""
    before = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = [line for line in before if line.startswith("| ") and line.count("|") == lines[0].count("|")]
    rows = {row_name(line): line for line in (*known, *lines[2:])}
    order = [f"{name} {size}" if len(case.sizes) > 1 else name for name, case in CASES.items() for size in case.sizes]
    left = [name for name in order if name not in rows]
    notes = [*missing, f"Not measured yet: {', '.join(left)}."] if left else missing
    versions = ", ".join(f"{one} {metadata.version(one)}" for one in VERSIONS if installed(one))
    table = [*lines[:2], *(rows[name] for name in order if name in rows)]
    about = (__doc__ or "").split("\n\n")[2]
    RESULTS.write_text("\n".join(["# Whole models", "", about, "", *table, "", *notes, f"Versions: {versions}.", ""]))


def row_name(line: str) -> str:
    """The first cell of a line."""
    return line.split("|")[1].strip()


def installed(library: str) -> bool:
    try:
        metadata.version(library)
    except metadata.PackageNotFoundError:
        return False
    return True


def measured(name: str, case: Whole, rounds: int) -> list[str]:
    """The lines of one model, one for each size."""
    torch.manual_seed(0)
    model = moved(case.build()).eval()
    files = {label: exported(name, model, case, arm) for label, arm in ARMS.items()}
    seconds = ", ".join(files[label][1] for label in (BASE, "kit 23"))
    sessions = {label: session(path) for label, (path, _) in files.items() if isinstance(path, Path)}
    refused = {label: path for label, (path, _) in files.items() if not isinstance(path, Path)}
    lines = []
    for size in case.sizes:
        found = {**refused, **timed(model, case.make(size), sessions, rounds)}
        size_name = f"{name} {size}" if len(case.sizes) > 1 else name
        lines.append(f"| {size_name} | " + " | ".join(found[label] for label in ARMS) + f" | {seconds} |")
    return lines


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """The model with its biases and scales off 0 and 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def exported(name: str, model: torch.nn.Module, case: Whole, arm: Arm) -> tuple[Path | str, str]:
    """(the file, or what the exporter said in a few words; seconds of the export)."""
    KEPT.mkdir(exist_ok=True)
    made_by = sources(MODELS, *(KIT if arm.kit else ()))
    label = f"{name}-{arm.kit or 'plain'}-{arm.opset}-{metadata.version('torch')}-{made_by}.onnx"
    path = KEPT / label.replace(" ", "_").replace(",", "")
    taken = path.with_suffix(".seconds")
    if path.exists() and taken.exists():
        return path, taken.read_text()
    began = time.thread_time()
    try:
        export(model, case, arm, path)
    except Exception as error:
        return f"refused: {type(error).__name__}", "-"
    taken.write_text(f"{time.thread_time() - began:.1f}")
    return path, taken.read_text()


@functools.cache
def sources(*places: Path) -> str:
    """A name for what these files, and the Python files below these folders, say today."""
    said = hashlib.sha256()
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            said.update(file.read_bytes())
    return said.hexdigest()[:12]


def export(model: torch.nn.Module, case: Whole, arm: Arm, path: Path) -> None:
    torch.manual_seed(1)
    args: Args = case.make(case.example)
    if arm.kit is None:
        with torch.no_grad():
            torch.onnx.export(
                model, args, path, dynamo=True, dynamic_shapes=case.dynamic_shapes, opset_version=arm.opset,
                external_data=False, verbose=False,
            )  # fmt: skip
        return
    onnxpatch.export(
        model, args, path, dynamic_shapes=case.dynamic_shapes, opset_version=arm.opset, operators=arm.kit,
        image_size=case.image_size, check=False,
    )  # fmt: skip


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def timed(
    model: torch.nn.Module, args: Args, sessions: dict[str, onnxruntime.InferenceSession], rounds: int
) -> dict[str, str]:
    """A cell for each arm: the ratio to plain with its quartiles, or that it is wrong; for plain, milliseconds."""
    with torch.no_grad():
        want = tensors(model(*args))[0]
    runs, cells = {}, {}
    for label, one in sessions.items():
        run = prepared(one, args)
        try:
            error: Any = deviation(run()[0], want)
        except Exception:
            error = "does not run"
        if isinstance(error, str) or error > TOLERANCE:
            cells[label] = "**wrong**"
        if not isinstance(error, str):
            runs[label] = run
    times = interleaved(runs, rounds)
    for label, taken in times.items():
        cells.setdefault(label, cell(label, taken, times[BASE]))
    return cells


def prepared(one: onnxruntime.InferenceSession, args: Args) -> Callable[[], Any]:
    feed = {node.name: value.numpy() for node, value in zip(one.get_inputs(), _given(one, args), strict=True)}
    return lambda: one.run(None, feed)


def _given(one: onnxruntime.InferenceSession, args: Args) -> list[Tensor]:
    """The tensors among `args` that are inputs of the file: an exporter may drop one that the model does not read."""
    flat, count = tensors(args), len(one.get_inputs())
    return flat[:count] if len(flat) > count else flat


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of thread CPU time of every arm in every round, after two rounds that do not count."""
    times: dict[str, list[float]] = {label: [] for label in runs}
    order = list(runs)
    for turn in range(rounds + 2):
        random.shuffle(order)
        for label in order:
            torch.set_flush_denormal(label in ARMS and ARMS[label].flushed)
            began = time.thread_time()
            runs[label]()
            if turn > 1:
                times[label].append(time.thread_time() - began)
    torch.set_flush_denormal(False)
    return times


def cell(label: str, taken: list[float], plain: list[float]) -> str:
    if label == BASE:
        return f"{statistics.median(taken) * 1e3:.1f} ms"
    ratios = sorted(mine / base for mine, base in zip(taken, plain, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    main()
