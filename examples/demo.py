"""The main job on real models, in a table: what torch.onnx.export does alone, and what it does with the kit.

run: make demo, or python examples/demo.py
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # the two examples below, also where the demo is not the script

import onnxpatch
from benchmarks.torchvision_ops import declare
from examples import scripted_einops_vit, vit_any_size

DYNAMIC = ({0: "batch", 2: "height", 3: "width"},)


@dataclass
class Job:
    """One export: the model, its example, which exporter, and about how many seconds both exports take."""

    title: str
    model: nn.Module
    example: torch.Tensor
    exporter: str
    seconds: int


def rotary() -> nn.Module:
    from vit_pytorch.rvt import RvT

    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
    return RvT(dim_head=16, **sizes).eval()


def jobs() -> Iterator[Job]:
    scripted = scripted_einops_vit.EinopsViT().eval()
    yield Job("EinopsViT, torch.jit.script", scripted, torch.randn(2, 3, 32, 32), "script", 3)
    yield Job("vit_pytorch RvT, trace", rotary(), torch.randn(2, 3, 32, 32), "trace", 5)
    yield Job("vit_pytorch ViTND, dynamo", vit_any_size.build(), torch.randn(2, 3, 32, 48), "dynamo", 20)


def plain(job: Job, path: Path) -> None:
    """torch.onnx.export as anyone calls it."""
    if job.exporter == "dynamo":
        torch.onnx.export(
            job.model, (job.example,), path, dynamo=True, dynamic_shapes=DYNAMIC, input_names=["image"], verbose=False
        )
        return
    model: Any = torch.jit.script(job.model) if job.exporter == "script" else job.model
    torch.onnx.export(
        model, (job.example,), path, dynamo=False, dynamic_axes={"image": DYNAMIC[0]}, input_names=["image"]
    )


def without_kit(job: Job, path: Path) -> str:
    try:
        plain(job, path)
    except Exception as error:
        return "refused: " + root_cause(error)
    report = onnxpatch.verify(
        path, job.model, (job.example,), dynamic_shapes=DYNAMIC, input_names=["image"], guards=False
    )
    wrong = report.first_wrong()
    return "right" if wrong is None else "reports success; " + textwrap.shorten(wrong.sentence(), 160)


def with_kit(job: Job, path: Path) -> tuple[str, str, str]:
    """(verdict, sizes checked, largest error); onnxpatch.export raises rather than leave a wrong file."""
    choice = {"dynamo": job.exporter == "dynamo", "script": job.exporter == "script"}
    report = onnxpatch.export(job.model, (job.example,), path, dynamic_shapes=DYNAMIC, input_names=["image"], **choice)
    sizes = {"x".join(map(str, check.sizes.values())) for check in report.checks if check.status == "right"}
    return "right", f"{len(sizes)}: " + ", ".join(sorted(sizes)), f"{report.worst:.1e}"


def root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return textwrap.shorten(str(error).strip().splitlines()[0], 160)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Exporters print whole graphs, from C++ too; the table is what should be read."""
    sys.stdout.flush()
    kept, nowhere = (os.dup(1), os.dup(2)), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1), os.dup2(nowhere, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.stdout.flush()
        for number, copy in enumerate(kept, 1):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)


def show(rows: list[tuple[str, ...]], widths: tuple[int, ...]) -> None:
    """A plain-text table whose cells wrap."""
    rule = "+".join("-" * (width + 2) for width in widths)
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            texts = (cell[line] if line < len(cell) else "" for cell in cells)
            print(" | ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip())
        print(rule)


HEAD = ("model, exporter", "torch.onnx.export alone", "with the kit", "sizes checked (batch x height x width)", "error")
WIDTHS = (18, 42, 9, 30, 8)


def main() -> None:
    torch.manual_seed(0)
    declare()  # vit_pytorch imports torchvision, whose operators a torch of another build may not load
    print("Three models, each exported plain and with the kit, and compared at sizes that the trace never saw.")
    with tempfile.TemporaryDirectory() as folder:
        for number, job in enumerate(jobs()):
            print(f"\n{job.title}: about {job.seconds} s ...", flush=True)
            started = time.perf_counter()
            path = Path(folder) / f"{number}.onnx"
            with hushed(), torch.no_grad():
                before = without_kit(job, path)
                after = with_kit(job, path)
            print(f"done in {time.perf_counter() - started:.0f} s")
            show([HEAD, (job.title, before, *after)], WIDTHS)
    print("\nerror: largest difference from the unpatched PyTorch model, as a share of its largest output")


if __name__ == "__main__":
    main()
