"""What a dynamic position table costs: against the cubic Resize of a plain export, and against a static export.

usage: python -m benchmarks.positions [--out benchmarks/results/positions.md] [--quick]
All times are medians of interleaved runs in onnxruntime on one CPU thread; only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

import onnxpatch
from benchmarks import torchvision_ops

GRIDS = ((16, 16), (37, 49), (74, 74))
Row = tuple[str, ...]


class Positions(nn.Module):
    """A 37x37x384 table, resized to the input's grid: DINOv2 ViT-S/14 at 518 pixels, by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 37 * 37, 384))

    def forward(self, grid: Tensor) -> Tensor:
        table = self.table.reshape(1, 37, 37, 384).permute(0, 3, 1, 2)
        table = nn.functional.interpolate(table, size=(grid.shape[0], grid.shape[1]), mode="bicubic")
        return table.permute(0, 2, 3, 1).reshape(1, -1, 384)


def session(model: nn.Module, example: Tensor, dynamic: Any, patched: bool = True) -> onnxruntime.InferenceSession:
    """The dynamo export of `model`, loaded with one thread."""
    file = Path(tempfile.mkdtemp()) / "model.onnx"

    def export() -> None:
        torch.onnx.export(
            model, (example,), str(file), dynamo=True, dynamic_shapes=dynamic, input_names=["x"], verbose=False
        )

    with torch.no_grad():
        if patched:
            with onnxpatch.patched(model, exporter="dynamo"):
                export()
        else:
            export()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def medians(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Median seconds of each run; the runs take turns, so that a busy machine slows all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def tables(rounds: int) -> list[Row]:
    """The table alone: patched against the Resize of a plain export."""
    model = Positions().eval()
    dynamic = ({0: "h", 1: "w"},)
    example = torch.zeros(20, 30)
    resize, matrices = session(model, example, dynamic, patched=False), session(model, example, dynamic)
    rows = []
    for grid in GRIDS:
        feed = {"x": np.zeros(grid, "float32")}
        slow, fast = medians([lambda s=s, f=feed: s.run(None, f) for s in (resize, matrices)], rounds)  # type: ignore
        rows.append((f"37x37 to {grid[0]}x{grid[1]}", f"{slow * 1e3:.1f}", f"{fast * 1e3:.2f}", f"{fast / slow:.4f}"))
    return rows


class Output(nn.Module):
    """One tensor of a transformers model's output."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.model(pixel_values)[self.name]


def whole_models() -> dict[str, nn.Module]:
    """ViT-S/14 and Depth-Anything-V2-small in full size, with random weights."""
    import transformers

    small = dict(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14)
    backbone = transformers.Dinov2Config(
        **small, out_indices=[3, 6, 9, 12], reshape_hidden_states=False, apply_layernorm=True
    )
    depth = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=384,
        neck_hidden_sizes=[48, 96, 192, 384],
        fusion_hidden_size=64,
    )
    return {
        "ViT-S/14 backbone": Output(transformers.Dinov2Model(transformers.Dinov2Config(**small)), "last_hidden_state"),
        "Depth-Anything-V2-small": Output(transformers.DepthAnythingForDepthEstimation(depth), "predicted_depth"),
    }


def against_static(name: str, model: nn.Module, size: tuple[int, int], rounds: int) -> Row:
    """One export with dynamic height and width against an export for this very size, both patched."""
    model.eval()
    image = torch.randn(1, 3, *size)
    fixed = session(model, image, None)
    free = session(model, torch.randn(1, 3, 28 * 4, 28 * 5), ({2: "h", 3: "w"},))
    feed = {"x": image.numpy()}
    static, dynamic = medians([lambda s=s: s.run(None, feed) for s in (fixed, free)], rounds)  # type: ignore
    label = f"{name}, {size[0]}x{size[1]}"
    return (label, f"{static * 1e3:.0f}", f"{dynamic * 1e3:.0f}", f"{dynamic / static:.3f}")


def markdown(title: str, header: Row, rows: list[Row]) -> str:
    """A table in Markdown."""
    lines = [f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="the tables only, few rounds")
    given = parser.parse_args()
    torchvision_ops.declare()
    header = ("case", "plain Resize, ms", "onnxpatch, ms", "ratio")
    parts = [markdown("Table alone (bound 0.03)", header, tables(3 if given.quick else 9))]
    if not given.quick:
        rows = [against_static(name, model, (224, 238), 9) for name, model in whole_models().items()]
        parts.append(markdown("Whole model (bound 1.05)", ("case", "static, ms", "dynamic, ms", "ratio"), rows))
    parts.append(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, one CPU thread.\n")
    text = "\n".join(parts)
    print(text)
    if given.out:
        given.out.write_text("# Position tables\n\n" + text)


if __name__ == "__main__":
    main()
