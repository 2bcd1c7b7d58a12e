"""What several attempts cost: one call of export that makes three, beside these three made one by one.

usage: python -m benchmarks.attempts_cost [--rounds 5] [--out FILE]

The model is that of examples/three_attempts.py, whose third attempt is right. Processor seconds, medians. Eager and the
inputs that are compared are shared among the attempts of one call, so that it may not cost more than the calls.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import onnxpatch
from benchmarks.quiet import quiet
from onnxpatch.onnxfile.metadata import versions

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_attempts.py"
ONE_BY_ONE: tuple[dict[str, Any], ...] = (
    {"attempts": "asked"},
    {"attempts": "asked", "exclude": "gate-limit"},
    {"attempts": "asked", "exclude": "gate-limit", "branches": True},
)


def example() -> torch.nn.Module:
    """The example's model. Its file registers the patch that is out of date."""
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: torch.nn.Module = module.model()
    return made.eval()


def seconds(model: torch.nn.Module, **options: Any) -> float:
    """Processor seconds of one call of export, whether it is right or refused."""
    start = time.process_time()
    with contextlib.suppress(onnxpatch.OnnxpatchError):
        onnxpatch.export(model, (torch.randn(4, 16),), None, dynamic_shapes=({0: "ROWS"},), **options)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "attempts_cost.md")
    asked = parser.parse_args()
    quiet()
    model = example()
    seconds(model)  # what is loaded once
    found = [(seconds(model), sum(seconds(model, **one) for one in ONE_BY_ONE)) for _ in range(asked.rounds)]
    ratios = sorted(together / alone for together, alone in found)
    lines = [
        f"torch {torch.__version__}, onnxruntime {versions()['onnxruntime']}; processor seconds, medians of "
        f"{asked.rounds} rounds",
        "",
        "| three attempts in one call | the three calls one by one | ratio | least and largest ratio |",
        "|---|---|---|---|",
        f"| {median(a for a, _ in found):.2f} | {median(b for _, b in found):.2f} | {median(ratios):.2f} | "
        f"{ratios[0]:.2f}, {ratios[-1]:.2f} |",
    ]
    asked.out.write_text("\n".join(lines) + "\n")
    print(asked.out.read_text())


if __name__ == "__main__":
    main()
