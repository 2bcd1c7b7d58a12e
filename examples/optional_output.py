"""An output that may be missing: one file, run on zeros and non-zeros, decoded back to None.

python examples/optional_output.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import onnxpatch


class FormattingLayer(nn.Module):
    """Doubles its input, and returns nothing for an input of zeros."""

    @onnxpatch.optional_output(like="input_tensor")
    def forward(self, input_tensor):
        if torch.all(input_tensor == 0):
            return None
        return input_tensor * 2


def export(model: nn.Module, exporter: str, file: Path) -> onnxpatch.Session:
    onnxpatch.export(
        model, (torch.ones(2, 3),), file, branches=True, dynamic_shapes=({0: "rows"},),
        dynamo=exporter == "dynamo", script=exporter == "script",
    )  # fmt: skip
    return onnxpatch.Session(file)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for exporter in ("dynamo", "trace", "script"):
            session = export(FormattingLayer().eval(), exporter, Path(folder) / f"{exporter}.onnx")
            zeros, ones = session(torch.zeros(4, 3)), session(torch.ones(4, 3))
            assert zeros is None
            assert torch.equal(ones, torch.full((4, 3), 2.0))
            print(f"{exporter:7s} outputs {', '.join(session.outputs)}: zeros -> {zeros}, ones -> {tuple(ones.shape)}")


if __name__ == "__main__":
    main()
