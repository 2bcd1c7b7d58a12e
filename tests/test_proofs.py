"""Every patch carries its proof: the case fails without it, for the reason named, and is right with it alone."""

from __future__ import annotations

import sys

import pytest
import torch

import onnxpatch
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.prove import prove
from tests.frac_stand_ins import declined, right, wrong

PATCHES = list(onnxpatch.REGISTRY)
# Ten seconds each and more under dynamo. A shorter proof of the same kind stays quick there: windows by those of
# torchvision and by timm's partition, masks by flex-attention-mask, positions by dinov2-positions and interpolate,
# merging by patch-merging, scans by tests/formulas/test_scans.py, transforms by tests/formulas/test_fourier.py, padding
# by longformer-attention, films, texts, chunks and routers by their proofs under trace. Under the other exporters all
# of them are quick.
LONG = {
    "adaptive-token-sampling", "associative-scan", "chunked-attention", "depth-pro-merge", "donut-swin-layer",
    "fast-lengths", "fft", "film-chunks", "film-resampling", "flex-attention", "led-padding", "lumina-texts",
    "maskformer-swin-layer", "patch-merging-postnorm", "running-extremes", "running-products", "siglip2-positions",
    "swin-layer", "swinv2-layer", "timm-swin-block", "timm-swin-cr-block", "token-routing",
}  # fmt: skip


def tier(patch, exporter):
    return pytest.mark.slow if patch.name in LONG and exporter == "dynamo" else ()


PROVEN = [
    pytest.param(patch, exporter, marks=tier(patch, exporter), id=f"{patch.name}-{exporter}")
    for patch in PATCHES
    if patch.proof
    for exporter in patch.proof.served()
]


def test_no_patch_failed_to_load():
    assert onnxpatch.REGISTRY.failures == {}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_every_patch_has_a_proof(patch):
    proof = patch.proof
    assert proof is not None, "declare proof=Proof(...): the smallest case that fails without the patch"
    assert proof.fails or proof.leaner or proof.slower, "the proof names no exporter in which anything is gained"
    assert bool(proof.fails) == bool(proof.reason), "reason= says with what the case fails, in the exporters of fails="
    assert len(proof.examples()) > 1, "the proof needs inputs that the trace never saw"
    assert {*proof.beside} <= {other.name for other in PATCHES} - {patch.name}


def test_those_that_take_long_are_patches_with_a_proof():
    assert {patch.name for patch in PATCHES if patch.proof} >= LONG


def held(patch) -> dict[tuple[str, str], int]:
    """The functions and classes of the patched library's modules, torch's and Python's own left out.

    Other values may change by themselves: a library fills its tables at the first use.
    """
    packages = {target.partition(".")[0] for target in patch.targets} - {"torch", "builtins", "math", "*"}
    modules = [(name, one) for name, one in list(sys.modules.items()) if name.partition(".")[0] in packages]
    return {
        (name, key): id(value) for name, one in modules for key, value in list(vars(one).items()) if callable(value)
    }


@pytest.mark.parametrize(("patch", "exporter"), PROVEN)
def test_proof(patch, exporter):
    before = held(patch)
    outcome = prove(patch, exporter)
    assert outcome.status == "proven", outcome.sentence
    after = held(patch)
    assert [name for name in before if after.get(name) != before[name]] == []


# ---- what runs the proofs: stand-ins for torch.frac, which the TorchScript exporter refuses


def wasteful(original, input):
    return right(original, input) + input.new_zeros(200, 200, input.shape[0]).sum((0, 1))


def proven(stand_in, **changes):
    case = {"build": lambda: Computes(torch.frac), "fails": ("trace",), "reason": "aten::frac"} | changes
    proof = onnxpatch.Proof(inputs=[(torch.randn(3),), (torch.randn(5),)], dynamic_shapes=({0: "n"},), **case)
    registry = onnxpatch.Registry()
    onnxpatch.patch("torch.frac", name="p", why="w", exporters=("trace",), proof=proof, registry=registry)(stand_in)
    return prove(registry["p"], "trace")


def test_a_proof_shows_the_failure_and_the_cure():
    outcome = proven(right)
    assert (outcome.status, outcome.holds) == ("proven", True)
    assert "aten::frac" in outcome.before and outcome.after.startswith("right, ")


def test_a_proof_leaves_the_random_numbers_of_the_process():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert prove(onnxpatch.REGISTRY["symbolic-sqrt"], "trace").holds
    assert torch.equal(torch.get_rng_state(), before)


def test_a_proof_at_an_opset_that_is_not_there_is_refused():
    assert "the installed onnx" in (outcome := proven(right, opset=99)).sentence
    assert (outcome.status, outcome.holds) == ("refused", True)


@pytest.mark.parametrize(
    ("stand_in", "changes", "status", "words"),
    [
        (wrong, {}, "failed", "relative error"),
        (declined, {}, "failed", "aten::frac"),
        (wasteful, {}, "failed", "times the bytes"),
        (right, {"reason": "aten::trunc"}, "unexplained", "aten::frac"),
        (right, {"build": lambda: Computes(torch.neg)}, "obsolete", "right"),
        (right, {"unchanged": lambda: Computes(torch.frac)}, "failed", "in which it must change nothing"),
        (right, {"fails": (), "leaner": ("trace",)}, "obsolete", "aten::frac"),
        (right, {"build": lambda: Computes(torch.neg), "slower": {"trace": 1e6}}, "obsolete", "times as long"),
    ],
)
def test_a_proof_that_does_not_hold_says_why(stand_in, changes, status, words):
    outcome = proven(stand_in, **changes)
    assert (outcome.status, outcome.holds) == (status, False)
    assert words in outcome.sentence
