"""How long an operator's file runs beside eager, and in how much memory: `python -m benchmarks.operators.cost`.

The entries are those of the table of operators, exported from torch's sample; one dynamic size grows until the inputs
have about 100,000 elements. Timed as `benchmarks.primitives` does; where eager returns a view of its input, a copy of
it, which is what a file returns. An entry without a size that may grow so far is left out. Where the kit's file takes
more than 3 x eager, the last column has torch's own export of it. The page keeps the lines of earlier runs.
"""

from __future__ import annotations

import argparse
import functools
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
LIMITS = (
    "Above 3 x are, first, kernels of onnxruntime that torch's own export pays, too: a product with one column (`mv`,",
    "`dot`), `Mod`, `Sign`, `Tan`, `Compress`, `NonZero`, `Pow`, and those for int64 ([bare",
    "operators](operators_floors.md)). Second, factorizations: a loop goes from column to column of a block of 64, and",
    "products do the rest: `qr` 15 x (83 column by column), `geqrf` 32 (119), `cholesky_inverse` 7 (104),",
    "`cholesky_solve` 3 (23). `lu`, `inv` and `solve` search a pivot for each column, in all. Third, series",
    "and bits of numbers that have no operator (`igamma`, `frexp`, `nextafter`). Where eager's own samples are equal",
    "numbers, `sort`, `topk`, `mode` and `kthvalue` name another one; where it has NaN or infinity, the error is one.",
)
_MOST_STEPS = 24
_SECONDS = 120.0


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
            times = primitives.timed(case, ELEMENTS, {"kit": file} if alone["seconds"] < primitives.QUICK else {}, 5)
        except Exception as error:
            return {"line": f"left out: {_short(error)} | | |"}
        cells = primitives.cell("kit", alone, times).replace(", ", " | ", 1)
        line = f"{times['eager'] * 1e6:,.0f} µs | {cells} |"
        return {"line": f"{line} {_beside(case, exporter, folder)}" if _over(line) else line}


def _beside(case: Grown, exporter: str, folder: str) -> str:
    """What torch's own export takes."""
    made, file = case.made, Path(folder) / "plain.onnx"
    names, dynamic = [f"in{i}" for i in range(len(made.args))], made.dynamic_shapes() or ({},) * len(made.args)
    try:
        primitives.write_model(made.model, made.args, exporter, dynamic, names, file)
        alone = primitives.run_alone(case, ELEMENTS, file)
        times = primitives.timed(case, ELEMENTS, {"plain": file}, 5)
    except Exception:
        return "none"
    return primitives.cell("plain", alone, times)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:60].replace("|", "/")


def write(known: dict[tuple[str, str], str]) -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime"))
    timed = {key: line for key, line in known.items() if not line.startswith("left out")}
    over = {key: line for key, line in timed.items() if _over(line)}
    head = ["| entry | exporter | eager | with the kit | memory | torch's own |", "|---" * 6 + "|"]
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
        *LIMITS,
        "",
        *head,
        *table,
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _over(line: str) -> bool:
    times, size = re.search(r"([\d.]+) x", line), re.search(r"(\d+) MB", line)
    return times is None or size is None or float(times[1]) > MOST_TIMES or float(size[1]) > MOST_MEGABYTES


def _rows() -> dict[tuple[str, str], str]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ", 2) for line in lines if line.startswith("| `")]
    return {(name.strip("`"), exporter): rest for name, exporter, rest in cells}


if __name__ == "__main__":
    main()
