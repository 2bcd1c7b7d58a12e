"""Every patch carries its proof: refused, wrong or fatter without it; right with it, at sizes the trace never saw."""

from __future__ import annotations

import copy

import pytest
import torch

import onnxpatch
from tests import exporting

PATCHES = list(onnxpatch.REGISTRY)
# Ten seconds each and more under dynamo. A shorter proof of the same kind stays quick there: windows by those of
# torchvision and by timm's partition, masks by flex-attention-mask, positions by dinov2-positions and interpolate,
# merging by patch-merging, scans by tests/formulas/test_scans.py. Under the other exporters all of them are quick.
LONG = {
    "adaptive-token-sampling", "depth-pro-merge", "donut-swin-layer", "flex-attention", "maskformer-swin-layer",
    "patch-merging-postnorm", "running-products", "siglip2-positions", "swin-layer", "swinv2-layer",
    "timm-swin-block", "timm-swin-cr-block",
}  # fmt: skip


def tier(patch, exporter):
    return pytest.mark.slow if patch.name in LONG and exporter == "dynamo" else ()


PROVEN = [
    pytest.param(patch, exporter, marks=tier(patch, exporter), id=f"{patch.name}-{exporter}")
    for patch in PATCHES
    if patch.proof
    for exporter in patch.proof.served()
]


def outcome(patch, exporter, **options) -> tuple[str | None, int]:
    """What is wrong with the export (None: nothing, at any input) and its number of nodes."""
    proof = patch.proof
    torch.manual_seed(0)
    model = proof.build().eval()
    examples = proof.examples()
    with torch.no_grad():
        wanted = [copy.deepcopy(model)(*copy.deepcopy(args)) for args in examples]
    try:
        with onnxpatch.patched(model, exporter=exporter, opset=proof.opset, **options):
            file = exporting.export(model, examples[0], exporter, proof.dynamic_shapes, proof.opset)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}", 0
    for args, want in zip(examples, wanted, strict=True):
        try:
            got = exporting.run(file, args)
        except Exception as error:
            return f"{type(error).__name__}: {error}", exporting.nodes(file)
        problem = exporting.wrong(got, want, proof.tolerance)
        if problem:
            return problem, exporting.nodes(file)
    return None, exporting.nodes(file)


def test_no_patch_failed_to_load():
    assert onnxpatch.REGISTRY.failures == {}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_every_patch_has_a_proof(patch):
    assert patch.proof is not None, "declare proof=Proof(...): the smallest case that fails without the patch"
    assert patch.proof.fails or patch.proof.leaner, "the proof names no exporter in which anything is gained"
    assert len(patch.proof.examples()) > 1, "the proof needs inputs that the trace never saw"


def test_those_that_take_long_are_patches_with_a_proof():
    assert {patch.name for patch in PATCHES if patch.proof} >= LONG


@pytest.mark.parametrize(("patch", "exporter"), PROVEN)
def test_proof(patch, exporter):
    problem, nodes = outcome(patch, exporter, **patch.proof.options)
    assert problem is None, f"with {patch.name}: {problem}"
    if exporter not in (*patch.proof.fails, *patch.proof.leaner):
        return
    without, plain_nodes = outcome(patch, exporter, exclude=patch.name)
    if exporter in patch.proof.fails:
        assert without is not None, f"{patch.name} is obsolete under {exporter}: its case passes without it"
    else:
        assert nodes < plain_nodes, f"{patch.name} saves nothing under {exporter}: {nodes} nodes, {plain_nodes} without"
