"""A network that skips its second half at run time, and what that saves.

python examples/early_exit.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

import onnxpatch


class EarlyExit(nn.Module):
    """Four more layers for those batches that need them."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))

    def forward(self, x):
        if x.mean() > 0:
            return self.more(x)
        return x


def session_of(model: nn.Module, file: Path) -> onnxruntime.InferenceSession:
    with onnxpatch.patched(model, branches=True, exporter="dynamo"), torch.no_grad():
        torch.onnx.export(
            model, (torch.ones(64, 512),), file, dynamo=True, verbose=False, external_data=False,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def measured(session: onnxruntime.InferenceSession, rounds: int = 60) -> tuple[float, float]:
    """Median seconds with the branch taken and skipped, interleaved."""
    name = session.get_inputs()[0].name
    inputs = [np.full((64, 512), value, dtype=np.float32) for value in (1.0, -1.0)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for values, kept in zip(inputs, times, strict=True):
            start = time.perf_counter()
            session.run(None, {name: values})
            kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> float:
    with tempfile.TemporaryDirectory() as folder:
        model = EarlyExit().eval()
        session = session_of(model, Path(folder) / "m.onnx")
        name = session.get_inputs()[0].name
        for x in (torch.rand(64, 512), -torch.rand(5, 512)):
            with torch.no_grad():
                wanted = model(x)
            assert np.allclose(session.run(None, {name: x.numpy()})[0], wanted.numpy(), atol=1e-4)
        taken, skipped = measured(session)
    print(f"taken {taken * 1e6:.0f} us, skipped {skipped * 1e6:.0f} us: {skipped / taken:.3f} of its own time")
    return skipped / taken


if __name__ == "__main__":
    main()
