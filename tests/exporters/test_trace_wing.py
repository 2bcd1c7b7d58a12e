"""What only the TorchScript exporter needs is apart: without it, models export with torch.export as ever."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.exports

WING = (
    "onnxpatch.exporters.torchscript", "onnxpatch._torch.script_tracing", "onnxpatch._torch.traced_nodes",
    "onnxpatch._torch.traced_shapes", "onnxpatch._torch.traced_sizes", "onnxpatch._torch.traced_writes",
)  # fmt: skip
SCRIPT = """
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

WING = {wing!r}


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in WING:
            raise ModuleNotFoundError(f"{{name}} is not there", name=name)


sys.meta_path.insert(0, Absent())
import onnxpatch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 3, 4, 4))
        self.norm = nn.LayerNorm(3)

    def forward(self, x):
        table = self.table
        if x.shape[-2:] != table.shape[-2:]:
            table = F.interpolate(table, x.shape[-2:], mode="bicubic")
        x = F.pad(x + table, (0, (4 - x.shape[-1] % 4) % 4)).flatten(2).transpose(1, 2)
        return self.norm(x) * (2 if {branches} and x.sum() > 0 else len(x))


free = {{"dynamic_shapes": ({{0: "B", 2: "H", 3: "W"}},), "exporter": "dynamo", "branches": {branches}}}
report = onnxpatch.export(Model().eval(), (torch.randn(2, 3, 6, 5),), "m.onnx", attempts="asked", **free)
assert report.ok, report
assert not set(WING) & set(sys.modules)
"""


@pytest.mark.parametrize("branches", [False, True])
def test_dynamo_exports_without_what_only_the_trace_exporter_needs(branches, tmp_path):
    script = SCRIPT.format(wing=WING, branches=branches)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
