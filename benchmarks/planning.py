"""What patching costs on a model of 100,000 modules, in plain `named_modules()` walks of the same model.

usage: python -m benchmarks.planning
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from einops.layers.torch import Rearrange
from torch import nn

import onnxpatch

RESULTS = Path(__file__).parent / "results"


def model_of(modules: int) -> nn.Module:
    """Blocks of a linear layer, a norm, an activation and a Rearrange under one list."""
    with torch.device("meta"):
        blocks = [
            nn.Sequential(nn.Linear(1, 1), nn.LayerNorm(1), nn.GELU(), Rearrange("b n d -> b d n"))
            for _ in range(modules // 5)
        ]
    return nn.Sequential(*blocks)


def seconds(action: Callable[[], object], rounds: int = 5) -> float:
    """Median wall time."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    model = model_of(100_000)
    onnxpatch.plan(nn.Identity())  # load the patches once, as every process does
    walk = seconds(lambda: list(model.named_modules()))
    rows = [("named_modules()", walk), ("plan", seconds(lambda: onnxpatch.plan(model)))]
    swaps, restores = [], []
    for _ in range(5):
        plan = onnxpatch.plan(model)
        patched = onnxpatch.Patched(plan)
        swaps.append(seconds(patched.apply, 1))
        restores.append(seconds(patched.restore, 1))
    rows += [("swap", statistics.median(swaps)), ("restore", statistics.median(restores))]
    total = sum(time for name, time in rows if name in ("plan", "swap"))
    rows.append(("plan + swap", total))
    lines = ["| step | ms | walks |", "|---|---|---|"]
    lines += [f"| {name} | {time * 1e3:.0f} | {time / walk:.1f} |" for name, time in rows]
    count = sum(1 for _ in model.modules())
    text = f"{count} modules, {len(plan.swaps)} swapped; torch {torch.__version__}\n\n" + "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "planning.md").write_text(text)


if __name__ == "__main__":
    main()
