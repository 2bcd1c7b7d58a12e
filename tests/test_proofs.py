"""Every patch carries its proof: the case fails without it, for the reason named, and is right with it alone."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import onnxpatch
from onnxpatch.diagnosis.proof_trial import ProofTrial, tried
from onnxpatch.prove import prove
from tests import tiers, without_patch
from tests.frac_stand_ins import declined, right, wrong
from tests.layers import Computes

PATCHES = list(onnxpatch.REGISTRY)
# In `make test` stand the proofs under trace that take less than LONGEST seconds, under dynamo the shortest for each
# form of a patch and for each helper that patches of several files share; make test-all runs all of them.
LONGEST = 1.0
STANDS_FOR = {
    "adaptive-average-pooling": "resize, symbolic, windows",
    "atan2-origin": "function of torch, nodes",
    "attention": "attention",
    "einops-reduce": "einops.axes, einops.rearrange",
    "einops-repeat-function": "function of a library",
    "growing-positions-cosines": "calls",
    "log1p": "elementary",
    "symbolic-float": "function of Python",
    "transformers-rms-norm": "class of a library, layer_nodes",
}
# The only ones of their form or helper, though they take longer.
UNDER_TRACE = {"encoder-padding", "fft"}
# Five seconds and more, up to a minute, by the other exporter: in make test they are compared under trace.
IN_TEST_ALL = {
    "dynamo": {"class of torch", "complex_pairs", "fourier", "matrices", "matrix_rounds", "orthogonal", "scans"},
    "trace": set(),
}
PYTHON = ("builtins", "math", "operator")
# In make check: one of each form, and of a few rooms of patches/.
SAMPLE = {
    "cdist",
    "einops-reduce",
    "symbolic-sqrt",
    "transformers-rms-norm",
}


SECONDS = tiers.read(tiers.TABLE.read_text(encoding="utf-8")).get("tests/test_proofs.py", {})


def in_make_test(patch, exporter):
    if exporter == "dynamo":
        return patch.name in STANDS_FOR
    return patch.name in UNDER_TRACE or SECONDS.get(f"test_proof[{patch.name}-{exporter}]", 0.0) < LONGEST


def tier(patch, exporter):
    sample = exporter == "trace" and patch.name in SAMPLE
    marks = [pytest.mark.sample if sample else pytest.mark.exports]
    return [*marks, pytest.mark.quick if in_make_test(patch, exporter) else pytest.mark.slow]


RUNS = [(patch, exporter) for patch in PATCHES if patch.proof for exporter in patch.proof.served()]
IN_MAKE_TEST = [(patch.name, exporter) for patch, exporter in RUNS if in_make_test(patch, exporter)]
PROVEN = [pytest.param(*run, marks=tier(*run), id=f"{run[0].name}-{run[1]}") for run in RUNS]


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


@pytest.mark.parametrize(
    "patch", [one for one in PATCHES if one.proof and one.proof.dynamic_shapes], ids=lambda p: p.name
)
def test_each_axis_that_a_proof_declares_is_varied_by_its_inputs(patch):
    # Those that differ are dynamic without a declaration: it is for names that say more, such as "past+t".
    examples = patch.proof.examples()
    implied = dataclasses.replace(patch.proof, dynamic_shapes=None).specs(examples)
    declared = [axes and sorted(axes) for axes in patch.proof.specs(examples)]
    assert declared == [axes and sorted(axes) for axes in implied]
    assert re.search(r"[+*/-]", str(patch.proof.dynamic_shapes)), "leave it out: the axes that differ are dynamic"


@functools.cache
def helpers(file: Path) -> set[str]:
    """The modules of onnxpatch.formulas that a file imports."""
    asked = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "", alias.name) for node in asked for alias in node.names]
    home = "onnxpatch.formulas"
    return {name if module == home else module.removeprefix(f"{home}.") for module, name in names if home in module}


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_each_form_and_each_shared_helper_has_a_proof_in_make_test(exporter):
    root = Path(onnxpatch.__file__).parents[1]
    each, users = {}, defaultdict(set)
    for patch in (one for one, by in RUNS if by == exporter):
        library = patch.targets[0].partition(".")[0]
        owner = "torch" if library == "torch" else "Python" if library in PYTHON else "a library"
        file = root / patch.declared_at.rsplit(":", 1)[0]
        each[patch.name] = {f"{patch.kind} of {owner}", *helpers(file)}
        for one in each[patch.name]:
            users[one].add(file)
    needed = {one for one, files in users.items() if " of " in one or len(files) > 1}
    shown = set().union(*(each[name] for name, by in IN_MAKE_TEST if by == exporter))
    assert needed - shown <= IN_TEST_ALL[exporter]
    if exporter == "dynamo":
        claimed = {name: set(text.split(", ")) for name, text in STANDS_FOR.items()}
        assert {name: some - each[name] for name, some in claimed.items() if some - each[name]} == {}
        assert needed - set().union(*claimed.values()) <= IN_TEST_ALL[exporter]


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
def test_proof(patch, exporter, request):
    anew = request.config.getoption("--anew")
    before = held(patch)
    outcome = prove(patch, exporter, before=None if anew else without_patch.known(patch, exporter))
    assert outcome.status == "proven", outcome.sentence
    after = held(patch)
    assert [name for name in before if after.get(name) != before[name]] == []


@pytest.mark.slow  # a change to many cases need not export each of them without its patch at once
def test_the_record_of_exports_without_a_patch_has_the_cases_as_they_are():
    if not without_patch.measured_here():
        pytest.skip("the record is of other versions: each case is exported without its patch")
    cases = [(onnxpatch.REGISTRY[name], exporter) for name, exporter in IN_MAKE_TEST]
    asked = [run for run in cases if without_patch.recordable(*run)]
    lacking = [f"{patch.name}-{exporter}" for patch, exporter in asked if not without_patch.known(patch, exporter)]
    assert lacking == [], "write them: python -m tests.without_patch"


class Half(torch.nn.Module):
    def forward(self, x):
        return torch.frac(x) / 2


def halves():
    return Half()


def thirds():
    return Computes(lambda x: torch.frac(x) / 3)


def tried_inputs():
    return [(torch.arange(3.0),), (torch.arange(5.0),)]


def longer_inputs():
    return [(torch.arange(3.0),), (torch.arange(6.0),)]


def test_the_digest_of_a_case_is_of_its_code_and_of_what_is_asked_of_it():
    case = onnxpatch.Proof(halves, tried_inputs, fails=("trace",), reason="aten::frac")
    same = onnxpatch.Proof(halves, tried_inputs, fails=("trace",), reason="aten::frac")
    changes = [{"build": thirds}, {"inputs": longer_inputs}, {"reason": "frac"}, {"opset": 20}]
    digests = [without_patch.digest(dataclasses.replace(case, **change), "trace") for change in [{}, *changes]]
    assert digests[0] == without_patch.digest(same, "trace")
    assert len({*digests, without_patch.digest(case, "dynamo")}) == 6


@pytest.mark.exports
def test_a_recorded_export_gives_the_verdict_that_a_new_one_gives():
    patch = onnxpatch.REGISTRY["symbolic-sqrt"]
    line = without_patch.made(patch, "trace")
    known = ProofTrial(line["problem"], line["nodes"])
    assert prove(patch, "trace", before=known).status == prove(patch, "trace").status == "proven"
    assert prove(patch, "trace", before=ProofTrial(None, 3)).status == "obsolete"
    assert prove(patch, "trace", before=ProofTrial("refused: another cause")).status == "unexplained"


@pytest.mark.exports
def test_a_sentence_has_the_first_line_of_an_error_and_a_reason_is_looked_for_in_the_one_underneath_too():
    case = onnxpatch.Proof(halves, tried_inputs, fails=("trace",), reason="opset version 18 is not supported$")
    trial = tried(case, "trace")
    assert re.search(case.reason, trial.problem) and trial.problem.count("\n") == 1
    assert str(trial) == trial.problem.splitlines()[0] and str(trial).count("aten::frac") == 1


# ---- what runs the proofs: stand-ins for torch.frac, which the TorchScript exporter refuses


def wasteful(original, input):
    return right(original, input) + input.new_zeros(200, 200, input.shape[0]).sum((0, 1))


def proven(stand_in, **changes):
    case = {"build": lambda: Computes(torch.frac), "fails": ("trace",), "reason": "aten::frac"} | changes
    proof = onnxpatch.Proof(inputs=[(torch.randn(3),), (torch.randn(5),)], dynamic_shapes=({0: "n"},), **case)
    registry = onnxpatch.Registry()
    onnxpatch.patch(
        "torch.frac", name="p", why="w", when=onnxpatch.When(exporters=("trace",)), proof=proof, registry=registry
    )(stand_in)
    return prove(registry["p"], "trace")


@pytest.mark.exports
def test_a_proof_shows_the_failure_and_the_cure():
    outcome = proven(right)
    assert (outcome.status, outcome.holds) == ("proven", True)
    assert "aten::frac" in outcome.before and outcome.after.startswith("right, ")


@pytest.mark.exports
def test_a_proof_leaves_the_random_numbers_of_the_process():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert prove(onnxpatch.REGISTRY["symbolic-sqrt"], "trace").holds
    assert torch.equal(torch.get_rng_state(), before)


def test_a_proof_at_an_opset_that_is_not_there_is_refused():
    assert "the installed onnx" in (outcome := proven(right, opset=99)).sentence
    assert (outcome.status, outcome.holds) == ("refused", True)


@pytest.mark.exports
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
