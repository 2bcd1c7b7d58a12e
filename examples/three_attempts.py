"""A model that is right at the third attempt: one patch is out of date, and it has a Python branch on a tensor's value.

The patch below was written for an older `Gate`, which had its limit in an attribute `limit`. Its stand-in fails now.
Without it, torch.export stops at the model's own `if`. With both sides of the branch exported, the file is right:
`export` finds this way by itself, and says how to take it at once.

run: python examples/three_attempts.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import onnxpatch

ROWS = ({0: "rows"},)


class Gate(torch.nn.Module):
    """float32 [rows, width] in and out: values beyond the threshold are cut off."""

    def __init__(self, threshold: float = 1.5) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-self.threshold, self.threshold)


class Ranker(torch.nn.Module):
    """float32 [rows, 16] in, scores [rows] out; confident ones are sharpened."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.score = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.score(self.gate(x)).squeeze(-1)
        if scores.mean() > 0:
            return scores * 4
        return scores


@onnxpatch.patch(f"{__name__}.Gate", name="gate-limit", why="written for a Gate that had a limit")
class OldGate:
    limit: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(x.abs(), torch.full((), self.limit)) * x.sign()


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Ranker().eval()


def main() -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    with tempfile.TemporaryDirectory() as folder:
        report = onnxpatch.export(model(), (x,), Path(folder) / "ranker.onnx", dynamic_shapes=ROWS)
        print(report.table())
        at_once = onnxpatch.export(
            model(), (x,), Path(folder) / "ranker.onnx", dynamic_shapes=ROWS, exclude="gate-limit", branches=True
        )
    assert [one.verdict for one in report.attempts] == ["refused", "refused", "right"]
    assert len(at_once.attempts) == 1 and at_once.ok
    print(f"{report.call}: {len(at_once.attempts)} attempt")


if __name__ == "__main__":
    main()
