"""Proofs at every opset from 19 on, and in half and double precision: right, or refused with the patch and without.

Each proof runs at one of the opsets and in one of the dtypes, since all of them at all would take hours. Its name says
which, so that one more patch moves no other.
`python -m benchmarks.proofs --opset 21` and `--dtype float16` run them all at one.
"""

from __future__ import annotations

import zlib

import pytest
import torch

import onnxpatch
from onnxpatch.prove import prove_under
from tests.frac_stand_ins import declined, right, wrong
from tests.layers import Computes

pytestmark = pytest.mark.exports

PROVEN = [(patch, exporter) for patch in onnxpatch.REGISTRY if patch.proof for exporter in patch.proof.served()]
BY_DYNAMO = [(patch, exporter) for patch, exporter in PROVEN if exporter == "dynamo"]
NEWEST = 26  # that the dynamo exporter and onnxruntime of the test environment know
OPSETS = range(19, NEWEST + 1)
DTYPES = (torch.float16, torch.bfloat16, torch.float64)


def one_of(choices, name):
    return choices[zlib.crc32(name.encode()) % len(choices)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patch", "opset"),
    [
        pytest.param(patch, opset, id=f"{opset}-{patch.name}")
        for patch, _ in BY_DYNAMO
        for opset in [one_of(OPSETS, patch.name)]
    ],
)
def test_a_proof_at_a_later_opset(patch, opset):
    outcome = prove_under(patch, "dynamo", opset=opset)
    assert outcome.holds, outcome.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patch", "exporter", "dtype"),
    [
        pytest.param(patch, exporter, dtype, id=f"{dtype}-{patch.name}-{exporter}")
        for patch, exporter in PROVEN
        for dtype in [one_of(DTYPES, f"{patch.name}-{exporter}")]
    ],
)
def test_a_proof_in_another_dtype(patch, exporter, dtype):
    outcome = prove_under(patch, exporter, dtype=dtype)
    assert outcome.holds, outcome.sentence


@pytest.mark.parametrize("name", ["bincount", "composites", "attention"])
def test_proofs_that_once_failed_in_another_dtype(name):
    dtype = torch.float64 if name == "attention" else torch.float16
    assert prove_under(onnxpatch.REGISTRY[name], "trace", dtype=dtype).status == "proven"


@pytest.mark.parametrize(
    ("stand_in", "function", "status"),
    [(right, torch.frac, "proven"), (wrong, torch.frac, "failed"), (declined, torch.frac, "refused"),
     (wrong, torch.neg, "failed")],
)  # fmt: skip
def test_what_counts_as_failed(stand_in, function, status):
    """Wrong where plain is refused or right. The inputs are in float16, and so is the tolerance."""
    proof = onnxpatch.Proof(
        build=lambda: Computes(function), inputs=[(torch.randn(3),), (torch.randn(5),)],
        dynamic_shapes=({0: "n"},), fails=("trace",), reason="aten::frac",
    )  # fmt: skip
    registry = onnxpatch.Registry()
    onnxpatch.patch(f"torch.{function.__name__}", name="p", why="w", proof=proof,
                    when=onnxpatch.When(exporters=("trace",)), registry=registry)(stand_in)  # fmt: skip
    assert prove_under(registry["p"], "trace", dtype=torch.float16).status == status
