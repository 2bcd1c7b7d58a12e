"""How long an operator's file runs beside eager, and in how much memory: `python -m benchmarks.operators.cost`.

The entries are those of the table of operators, exported from torch's sample; one dynamic size grows until the inputs
have about 100,000 elements. Timed as `benchmarks.primitives` does; where eager returns a view of its input, a copy of
it, which is what a file returns. The least of up to 60 runs, eager and file in turn, one thread. An entry without a
size that may grow so far is left out. Where the kit's file takes more than 3 x eager, the last columns have torch's own
export of it, and the node that takes most. The page keeps the lines of earlier runs.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import tempfile
import zlib
from importlib import metadata
from pathlib import Path
from typing import Any

import onnxruntime
import torch

import onnxpatch
from benchmarks import forked, primitives
from benchmarks.operators.entries import LeftOut, Subject, Tensors, eager, operators, outputs, resized, subject

ELEMENTS = 100_000
MOST_TIMES, MOST_MEGABYTES = 3.0, 500.0
RESULTS = Path(__file__).parent.parent / "results" / "operators_cost.md"
KINDS = {
    "as torch's own": "torch's own export takes as long, at least nine tenths: the same kernels of onnxruntime",
    "one node": "one node takes more than 3 x by itself: a kernel of onnxruntime",
    "a loop": "a loop of the graph takes more than 3 x: factorizations go from column to column, and each node of a "
    "round has its price (`lu`, `inv`, `solve`, `qr`: blocks of 64 columns, products between them); a search halves "
    "the table, also for one value",
    "several nodes": "no node takes more than 3 x: eager reads and writes memory once, a file once for each node",
}
NOTE = (
    "Where eager's own samples are equal numbers, `sort`, `topk`, `mode` and `kthvalue` name another one; where it has "
    "NaN or infinity, the error is one. Eager leaves `cholesky_ex` at the first row that fails, as in its sample, and "
    "most of the samples of `igamma` have no value, for which eager computes nothing. The lowest figure that a file "
    "with the same nodes can reach is torch's own, or that of the slowest node. Factorizations, searches and what was "
    "changed from 2026-11-27 on were measured on a machine with other work, where eager and file take about twice as "
    "long, and loops of many small nodes a third more beside eager than before."
)
_WRONG = "**wrong"
_MOST_STEPS = 24
_SECONDS = 120.0
_ENOUGH = 0.5  # seconds for the runs of a file


class _Owned(torch.nn.Module):
    """A model whose results share no memory with its inputs, and have complex numbers as pairs: as a file's."""

    def __init__(self, model: torch.nn.Module, shared: list[bool]) -> None:
        super().__init__()
        self.model, self.shared = model, shared

    def forward(self, *args: torch.Tensor) -> list[torch.Tensor]:
        results = zip(outputs(self.model(*args)), self.shared, strict=True)
        found = [x.clone(memory_format=torch.contiguous_format) if shared else x for x, shared in results]
        return [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in found]


class Grown:
    """A subject as a case of `benchmarks.primitives`: `build` and `arguments`."""

    def __init__(self, made: Subject) -> None:
        self.made = made
        memory = {x.untyped_storage().data_ptr() for x in made.args}
        results = outputs(made.model(*made.args))
        self.shared = [x.untyped_storage().data_ptr() in memory for x in results]
        self.plainly = not any(self.shared) and not any(x.is_complex() for x in results)

    def build(self) -> torch.nn.Module:
        return self.made.model if self.plainly else _Owned(self.made.model, self.shared)

    def arguments(self, n: int) -> Tensors:
        """The inputs with the first size that eager lets grow to about n elements."""
        for name, places in self.made.groups.items():
            by, found = 1, self.made.args
            for _ in range(_MOST_STEPS):
                if sum(x.numel() for x in found) >= n:
                    break
                by *= 2
                found = resized(self.made.args, {name: places}, by)
            if n / 2 <= sum(x.numel() for x in found) <= 4 * n and eager(self.made.model, found) is not None:
                return found
        raise LeftOut("no size may grow so far")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exporter", choices=("trace", "dynamo"), default="trace")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    forked.warmed()
    onnxruntime.set_default_logger_severity(4)
    known = _rows()
    for name in operators():
        if zlib.crc32(name.encode()) % given.every or not re.search(given.only, name):
            continue
        if (name, given.exporter) not in known or given.only:
            found = forked.run(functools.partial(measured, name, given.exporter), _SECONDS)
            known[name, given.exporter] = found.get("line", f"left out: {found.get('reason')} | | |")
            print(name, known[name, given.exporter], flush=True)
            write(known)


def measured(name: str, exporter: Any) -> dict[str, str]:
    """The last cells of an entry's line; a reason in the first one where there is nothing to time."""
    try:
        case: Any = Grown(subject("operators", name, "first"))
        case.arguments(ELEMENTS)
    except Exception as reason:
        return {"line": f"left out: {_short(reason)} | | |"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        try:
            onnxpatch.export(
                case.made.model, case.made.args, file, exporter=exporter, check=False, attempts="asked",
                dynamic_shapes=case.made.dynamic_shapes(), input_names=[f"in{i}" for i in range(len(case.made.args))],
            )  # fmt: skip
            alone = primitives.run_alone(case, ELEMENTS, file)
            times = _least(case, {"kit": file}, alone)
        except Exception as error:
            return {"line": f"left out: {_short(error)} | | |"}
        cells = primitives.cell("kit", alone, times).replace(", ", " | ", 1)
        line = f"{times['eager'] * 1e6:,.0f} µs | {cells} |"
        if _over(line):
            line = f"{line} {_beside(case, exporter, folder)} | {_slowest(case, file, times)}"
        return {"line": line}


def _slowest(case: Any, file: Path, times: dict[str, float]) -> str:
    """The node that takes most of a run, and how long beside eager: no file with this node is faster."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.enable_profiling, options.profile_file_prefix = True, str(file.with_name("runs"))
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    known = {node.name for node in session.get_inputs()}
    feed = {f"in{i}": x.numpy() for i, x in enumerate(case.arguments(ELEMENTS)) if f"in{i}" in known}
    for _ in range(max(3, min(40, int(_ENOUGH / times["kit"])))):
        session.run(None, feed)
    least: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"]
            kinds[name], least[name] = event["args"]["op_name"], min(least.get(name, event["dur"]), event["dur"])
    name = max(least, key=lambda one: least[one])
    # A profile has the time that passes, other processes included: at most what the whole file takes of this one's.
    return f"{kinds[name]} {min(least[name] / 1e6, times['kit']) / times['eager']:.1f} x"


def _least(case: Any, arms: primitives.Files, alone: dict[str, Any]) -> dict[str, Any]:
    """The least seconds of eager and of the file, run in turn: whatever else a machine does only adds to them."""
    rounds = max(3, min(60, int(_ENOUGH / alone["seconds"])))
    return primitives.timed(case, ELEMENTS, arms, rounds, min)


def _beside(case: Grown, exporter: str, folder: str) -> str:
    """What torch's own export takes."""
    made, file = case.made, Path(folder) / "plain.onnx"
    names, dynamic = [f"in{i}" for i in range(len(made.args))], made.dynamic_shapes() or ({},) * len(made.args)
    try:
        primitives.write_model(made.model, made.args, exporter, dynamic, names, file)
        alone = primitives.run_alone(case, ELEMENTS, file)
        times = _least(case, {"plain": file}, alone)
    except Exception:
        return "none"
    return primitives.cell("plain", alone, times)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:60].replace("|", "/")


def write(known: dict[tuple[str, str], str]) -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime"))
    timed = {key: line for key, line in known.items() if not line.startswith("left out")}
    over = {key: line for key, line in timed.items() if _over(line)}
    head = ["| entry | exporter | eager | with the kit | memory | torch's own | slowest node |", "|---" * 7 + "|"]
    table = [f"| `{name}` | {exporter} | {line} |" for (name, exporter), line in sorted(known.items())]
    above = (
        f"{len(timed)} timed, {len(known) - len(timed)} left out; {len(over)} take more than {MOST_TIMES:g} x eager "
    )
    about = (__doc__ or "").partition("\n\n")[2].strip()
    lines = [
        "# Operators: cost",
        "",
        f"{about} {versions}.",
        "",
        f"{above}or {MOST_MEGABYTES:g} MB.",
        "",
        *(f"- {KINDS[kind]}: {', '.join(names)}." for kind, names in _by_kind(over).items()),
        "",
        NOTE,
        "",
        *head,
        *table,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _by_kind(over: dict[tuple[str, str], str]) -> dict[str, list[str]]:
    """The names of the entries above the limit, by the reason."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for (name, _), line in sorted(over.items()):
        cells = [cell.strip(" |") for cell in line.split(" | ")]
        times = [re.search(r"([\d.]+) x", cell) for cell in (cells[1], cells[-2], cells[-1])]
        kit, own, node = (float(one[1]) if one else 0.0 for one in times)
        as_own = own > 0.9 * kit and _WRONG not in cells[-2]
        kind = "as torch's own" if as_own else "a loop" if "Loop" in cells[-1] else "one node"
        found[kind if as_own or node > MOST_TIMES else "several nodes"].append(f"`{name}` {kit:g} x")
    return {kind: names for kind, names in found.items() if names}


def _over(line: str) -> bool:
    times, size = re.search(r"([\d.]+) x", line), re.search(r"(\d+) MB", line)
    return times is None or size is None or float(times[1]) > MOST_TIMES or float(size[1]) > MOST_MEGABYTES


def _rows() -> dict[tuple[str, str], str]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ", 2) for line in lines if line.startswith("| `")]
    return {(name.strip("`"), exporter): rest for name, exporter, rest in cells}


if __name__ == "__main__":
    main()
