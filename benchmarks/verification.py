"""What proving an export costs, in times of the export itself, on models under 100 MB.

python -m benchmarks.verification [NAME ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import onnxpatch
from benchmarks import torchvision_ops

RESULTS = Path(__file__).parent / "results"
ROUNDS = 2
IMAGE = ({0: "b", 2: "h", 3: "w"},)


def vit() -> tuple[nn.Module, Any, Any]:
    from vit_pytorch import ViT

    model = ViT(image_size=64, patch_size=8, num_classes=10, dim=128, depth=4, heads=4, mlp_dim=256)
    return model, (torch.randn(2, 3, 64, 64),), ({0: "b"},)


def simple_vit() -> tuple[nn.Module, Any, Any]:
    from vit_pytorch.simple_vit import SimpleViT

    model = SimpleViT(image_size=224, patch_size=16, num_classes=1000, dim=384, depth=12, heads=6, mlp_dim=1536)
    return model, (torch.randn(2, 3, 224, 224),), ({0: "b"},)


def resnet() -> tuple[nn.Module, Any, Any]:
    from torchvision.models import resnet50

    return resnet50(weights=None), (torch.randn(2, 3, 128, 128),), IMAGE


def swin() -> tuple[nn.Module, Any, Any]:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(image_size=64, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4)
    return SwinModel(config), (torch.randn(2, 3, 64, 64),), IMAGE


def position_table() -> tuple[nn.Module, Any, Any]:
    from examples.position_table import SIZES, model

    return model(), (torch.randn(2, 3, 64, 64),), SIZES


def optional_output() -> tuple[nn.Module, Any, Any]:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(16, 1)
            self.boxes = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            score = self.score(x).sigmoid()
            return score, self.boxes(x) if score.max() > 0.5 else None

    return Detector(), (torch.randn(4, 16),), ({0: "n"},)


MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, Any, Any]], dict[str, Any]]] = {
    "vit-pytorch ViT, 4 blocks": (vit, {}),
    "vit-pytorch SimpleViT-S": (simple_vit, {}),
    "torchvision resnet50": (resnet, {}),
    "transformers Swin, 2 stages": (swin, {}),
    "position table": (position_table, {}),
    "optional output, branches": (optional_output, {"branches": True}),
}


def measured(name: str, dynamo: bool) -> tuple[float, float, int, float]:
    """(processor seconds of the export alone, those that the proof adds, comparisons, MB of weights)."""
    turns = [(_export(name, dynamo, check=False), _export(name, dynamo, check=True)) for _ in range(ROUNDS)]
    alone, whole = (min(turn[checked][0] for turn in turns) for checked in (0, 1))
    _, report, model = turns[-1][1]
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 1e6
    return alone, whole - alone, len(report.checks), weights


def _export(name: str, dynamo: bool, check: bool) -> tuple[float, onnxpatch.Report, nn.Module]:
    build, options = MODELS[name]
    torch.manual_seed(0)
    model, args, sizes = build()
    model.eval()
    start = time.process_time()
    report = onnxpatch.export(model, args, None, dynamic_shapes=sizes, dynamo=dynamo, check=check, **options)
    return time.process_time() - start, report, model


def main() -> None:
    torch.set_num_threads(1)
    torchvision_ops.declare()
    warnings.simplefilter("ignore")
    for dynamo in (False, True):  # the first export of a process loads the exporter
        onnxpatch.export(nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None, dynamo=dynamo, check=True)
    rows = []
    for name in sys.argv[1:] or MODELS:
        for dynamo in (True, False):
            alone, added, checks, weights = measured(name, dynamo)
            exporter = "dynamo" if dynamo else "trace"
            rows.append(
                f"| {name} | {weights:.1f} | {exporter} | {alone:.1f} | {added:.1f} | {added / alone:.2f} | {checks} |"
            )
            print(rows[-1], flush=True)
    head = [
        f"torch {torch.__version__}, one thread; processor seconds, the least of {ROUNDS} runs; export: check=False.",
        "How many comparisons there are depends on the arithmetic of the model alone: the same on every machine.",
        "",
        "| model | MB | exporter | export | proof adds | share | comparisons |",
        "|---|---|---|---|---|---|---|",
    ]
    if len(sys.argv) == 1:
        (RESULTS / "verification.md").write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
