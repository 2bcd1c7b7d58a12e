"""vit_pytorch models, tiny, through both exporters with the kit: right in onnxruntime at sizes the export never saw."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("vit_pytorch", reason="the models under test")

from benchmarks.cases.vit_pytorch import CASES
from benchmarks.measure import EXPORTERS, measure

pytestmark = pytest.mark.exports

# Each stands for a cause: flex_attention, Fourier transform, size-made rotary positions, RMS norm, bool identity
# matrix, masked max, and two that are right without the kit and must stay so.
QUICK = {
    "vit_nd_causal": ("trace",),
    "simple_vit_fft": EXPORTERS,
    "rvt": ("trace",),
    "attn_residual_dca": ("trace",),
    "vit_small_dataset": ("trace",),
    "vit_detpool_mask": ("trace",),
    "vit": ("trace",),
    "simple_vit_1d": ("trace",),
}
ALL = [(case, exporter) for case in CASES for exporter in EXPORTERS]
FAST = [(case, exporter) for case, exporters in QUICK.items() for exporter in exporters]


def outcome(case: str, exporter: str):
    torch.manual_seed(0)
    return measure(CASES[case](), exporter, "patched")


@pytest.mark.parametrize(("case", "exporter"), FAST)
def test_right(case, exporter):
    found = outcome(case, exporter)
    assert found.verdict == "right", found.reason


@pytest.mark.slow
@pytest.mark.parametrize(("case", "exporter"), [pair for pair in ALL if pair not in FAST])
def test_right_too(case, exporter):
    found = outcome(case, exporter)
    assert found.verdict == "right", found.reason
