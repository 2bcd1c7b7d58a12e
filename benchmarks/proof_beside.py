"""What an export with its proof takes beside another checkout of this project: processor seconds under trace.

usage: python -m benchmarks.proof_beside CHECKOUT [--rounds N] [--only TEXT]

The checkouts take turns, each with a process of its own; in it every model is exported in a fork that finds the
exporter loaded. The table has the least of the rounds. Models, inputs and versions are the same for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import case as families
from benchmarks import forked
from onnxpatch.onnxfile.metadata import versions

RESULTS = Path(__file__).parent / "results"
MODELS = (
    "text_encoders/bert", "text_encoders/distilbert", "text_decoders/llama", "text_decoders_cached/gpt2",
    "encoder_decoders/t5", "audio/wav2vec2", "time_series/patchtst", "diffusion/unet_2d", "timm/vit",
    "transformers_vision/dinov2", "torchvision/resnet18", "vit_pytorch/vit",
)  # fmt: skip
LIMIT = 300.0  # seconds for one export


def seconds(name: str) -> dict[str, Any]:
    """Processor seconds of one export with its proof, and its verdict; runs in a child process."""
    case = families.build(*name.split("/"))
    assert case is not None
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        report = onnxpatch.export(
            case.model.eval(), case.inputs[0], Path(folder) / "m.onnx", dynamic_shapes=case.dynamic_shapes, dynamo=False
        )
        return {"seconds": time.process_time() - start, "verdict": report.verdict, "checks": len(report.checks)}


def child(names: list[str]) -> None:
    """Each model in turn, with the checkout that stands in the working directory."""
    forked.warmed()
    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None, dynamo=False)
    print(json.dumps({name: forked.run(lambda name=name: seconds(name), LIMIT) for name in names}))


def measured(checkout: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """One round of one checkout: its package, with the models of this one."""
    with tempfile.TemporaryDirectory() as folder:
        for name, home in (("onnxpatch", checkout), ("benchmarks", Path(__file__).parents[1])):
            (Path(folder) / name).symlink_to(home / name)
        call = [sys.executable, "-m", "benchmarks.proof_beside", "--child", *names]
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(call, cwd=folder, env=own, capture_output=True, text=True, check=True)
        answer: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return answer


def table(rounds: dict[str, list[dict[str, dict[str, Any]]]], names: list[str]) -> str:
    with_what = ", ".join(f"{name} {version}" for name, version in versions().items())
    least = {at: {name: min(one[name].get("seconds", float("inf")) for one in found) for name in names}
             for at, found in rounds.items()}  # fmt: skip
    one, other = least.values()
    ratios = {name: one[name] / other[name] for name in names}
    here, there = rounds
    lines = [f"{with_what}; one thread, trace; processor seconds of an export with its proof, the least of "
             f"{len(rounds[here])} rounds, in brackets the number of checks", "",
             f"| model | {here} | {there} | ratio |", "|---|---|---|---|"]  # fmt: skip
    for name in names:
        checks = [rounds[at][-1][name].get("checks", "no answer") for at in rounds]
        lines.append(
            f"| {name} | {one[name]:.2f} ({checks[0]}) | {other[name]:.2f} ({checks[1]}) | {ratios[name]:.2f} |"
        )
    return "\n".join([*lines, f"| median | | | {statistics.median(ratios.values()):.2f} |"]) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    names = [name for name in MODELS if asked.only in name]
    homes = [Path(__file__).parents[1], asked.checkout.resolve()]
    commits = [subprocess.check_output(["git", "log", "-1", "--format=%h, %as"], cwd=home, text=True).strip()
               for home in homes]  # fmt: skip
    rounds: dict[str, list[dict[str, dict[str, Any]]]] = {commit: [] for commit in commits}
    for _ in range(asked.rounds):
        for commit, home in zip(commits, homes, strict=True):
            rounds[commit].append(measured(home, names))
            print(commit, json.dumps(rounds[commit][-1]), flush=True)
    text = table(rounds, names)
    print(text)
    if not asked.only:
        (RESULTS / "proof_beside.md").write_text(text)


if __name__ == "__main__":
    main()
