"""What dynamic height and width cost while exporting: processor seconds against a static export of the same model.

usage: python -m benchmarks.export_times [NAME ...]

Models with windows or several scales, whose exports the libraries' own tests skip for taking too long. Both exports are
patched; each runs in a process of its own that has loaded the exporter.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import forked, torchvision_ops
from benchmarks.case import Case
from benchmarks.cases import timm, transformers_vision
from benchmarks.coverage import RESULTS, warm_up
from benchmarks.measure import static, tensors, write
from benchmarks.quiet import quiet

MODELS: dict[str, Callable[[], Case]] = {
    **{name: transformers_vision.CASES[name] for name in (
        "swin", "swinv2", "donut_swin", "maskformer_swin", "vitdet", "hiera", "mask2former", "deformable_detr")},
    **{f"timm {name}": timm.CASES[name] for name in ("swin", "maxvit", "davit")},
}  # fmt: skip


def seconds(name: str, exporter: str, form: str) -> dict[str, Any]:
    """Processor seconds of one export; runs in a child process."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    case = MODELS[name]()
    case = static(case) if form == "static" else case
    case.model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        start = time.process_time()
        names = [f"in{i}" for i in range(len(tensors(case.inputs[0])))]
        write(case, exporter, "patched", Path(folder) / "model.onnx", names)
        return {"seconds": time.process_time() - start}


def row(name: str, exporter: str) -> str:
    found = {form: forked.run(lambda form=form: seconds(name, exporter, form), 600) for form in ("static", "dynamic")}
    times = [found[form].get("seconds") for form in ("static", "dynamic")]
    if None in times:
        return f"| {name} | {exporter} | " + " | ".join(str(found[form])[:60] for form in found) + " | |"
    return f"| {name} | {exporter} | {times[0]:.1f} | {times[1]:.1f} | {times[1] / times[0]:.2f} |"


def main() -> None:
    quiet()
    torchvision_ops.declare()
    warm_up()
    torch.onnx.export(torch.nn.Linear(2, 2), (torch.randn(3, 2),), io.BytesIO(), dynamo=False)
    lines = ["| model | exporter | static, s | dynamic, s | ratio |", "|---|---|---|---|---|"]
    for name in sys.argv[1:] or MODELS:
        for exporter in ("dynamo", "trace"):
            lines.append(row(name, exporter))
            print(lines[-1], flush=True)
    if len(sys.argv) == 1:
        head = f"torch {torch.__version__}; processor seconds of one export each, patched (bound of the ratio: 3)\n\n"
        (RESULTS / "export_times.md").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
