"""Runs a patch's proof: its case is exported with this patch alone, and without any.

export without it   refused or wrong, for the reason that the proof names; or right with more nodes; or right and slower
export with it      right at every input, within the bounds on time and memory
the unchanged case  captured with and without the patch: the same graph
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from onnxpatch.diagnosis.proof_trial import TOLERANCE, ProofTrial, changed, tried
from onnxpatch.onnxfile.runtime import times_as_long
from onnxpatch.patching.plan import plan as make_plan
from onnxpatch.patching.proof import Proof
from onnxpatch.patching.registry import Patch, Registry
from onnxpatch.settings import Exporter, Settings
from onnxpatch.verification.comparison import tolerance_for

# As this package and torch say it.
_NO_OPSET = re.compile(r"the installed onnx \S+ knows|Unsupported ONNX opset version")
MAX_SECONDS = 60.0  # of the processor, for one export; a machine that does other work too does not change the verdict
MAX_MEMORY = 64.0  # bytes of the largest intermediate value, for each byte of inputs, outputs and weights


@dataclass(frozen=True)
class _ProofOutcome:
    """What one proof showed in one exporter. before, after: the export without and with the patch, in words.

    status: proven; failed (not right with the patch, or past a bound); obsolete (as good without it); unexplained
    (fails without it, for another reason than the proof names); refused (the patch's conditions are not met here, or
    the code that it patches is not the code that it knows, or is not in the installed version, or eager fails there, or
    the installed onnx or torch does not know the proof's opset).
    """

    status: str
    before: str = ""
    after: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the patch."""
        return self.status in ("proven", "refused")

    @property
    def sentence(self) -> str:
        """The status, with both exports."""
        shown = f"without it {self.before}, with it {self.after}" if self.before else self.after
        return f"{self.status} ({shown})" if shown else self.status


def prove(
    patch: Patch, exporter: Exporter, runtime: str | Sequence[str] | None = None, before: ProofTrial | None = None
) -> _ProofOutcome:
    """Run the proof of `patch` in one exporter that it serves. Raises ValueError where it has no proof.

    runtime: what the files run in, as `export` takes it. before: the export without the patch, where it is known; a
    proof that compares times makes it anew.
    """
    proof = _proof_of(patch)
    refusal = _refusal(patch, proof, exporter)
    if refusal:
        return _ProofOutcome("refused", after=refusal)
    after = tried(proof, exporter, patch, runtime)
    if after.eager_fails or _NO_OPSET.search(after.problem or ""):
        return _ProofOutcome("refused", after=str(after))
    problem = after.problem or _past_bounds(after) or changed(proof, exporter, patch)
    if problem:
        return _ProofOutcome("failed", after=problem.partition("\n")[0])
    if exporter not in (*proof.fails, *proof.leaner, *proof.slower):
        return _ProofOutcome("proven", after=str(after))
    # Last, since an export without the patch tells nothing where the patch itself fails.
    if before is None or exporter in proof.slower:
        before = tried(proof, exporter, runtime=runtime)
    if exporter in proof.slower and before.problem is None:
        return _timed(proof.slower[exporter], before, after)
    return _ProofOutcome(_verdict(proof, exporter, before, after), str(before), str(after))


def prove_under(
    patch: Patch,
    exporter: Exporter,
    *,
    opset: int | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    runtime: str | Sequence[str] | None = None,
    providers: Sequence[str] | None = None,
) -> _ProofOutcome:
    """Whether the proof's case is right with the patch at another opset, in another floating-point dtype or on a GPU.

    refused: it is refused, not run, or wrong, with the patch and without it. failed: it is right without the patch, or
    wrong with it where it is refused without. The tolerance is the dtype's.

    device: of model and inputs, such as "cuda". providers: onnxruntime's, that run the files.

    Raises ValueError where the patch has no proof.
    """
    proof = _proof_of(patch).under(opset, dtype, device)
    refusal = _refusal(patch, proof, exporter)
    if refusal:
        return _ProofOutcome("refused", after=refusal)
    # Outputs in float32 too: they were computed from numbers of this dtype.
    tolerance = tolerance_for(dtype or torch.float32, TOLERANCE)
    after = tried(proof, exporter, patch, runtime, tolerance, providers)
    if after.problem is None:
        return _ProofOutcome("proven", after=str(after))
    before = tried(proof, exporter, None, runtime, tolerance, providers)
    worse = before.problem is None or (after.problem.startswith("wrong") and not before.problem.startswith("wrong"))
    return _ProofOutcome("failed" if worse else "refused", str(before), str(after))


def _proof_of(patch: Patch) -> Proof:
    if patch.proof is None:
        raise ValueError(f"{patch.name} has no proof: give it proof=onnxpatch.Proof(...)")
    return patch.proof


def _refusal(patch: Patch, proof: Proof, exporter: Exporter) -> str | None:
    """Why the patch does not apply to its own case here: its conditions, a library without it, or unknown code."""
    refusal = patch.when.refusal(Settings(exporter, proof.opset))
    if refusal:
        return refusal
    try:
        model = proof.build()
        proof.examples()
    except Exception as error:  # another version of the library, without the class or with other arguments
        return f"the model of its proof cannot be made with the installed versions: {type(error).__name__}: {error}"
    if not patch.when.bodies:
        return None
    # Alone in a registry, so that no other patch takes the module before it.
    registry = Registry()
    registry.register(patch)
    plan = make_plan(model, exporter=exporter, opset=proof.opset, registry=registry)
    return plan.near_misses[0].reason if plan.near_misses and not plan.swaps else None


def _timed(least: float, before: ProofTrial, after: ProofTrial) -> _ProofOutcome:
    found = times_as_long(before.run, after.run)
    return _ProofOutcome("proven" if found >= least else "obsolete", f"{before}, {found:.2f} times as long", str(after))


def _verdict(proof: Proof, exporter: Exporter, before: ProofTrial, after: ProofTrial) -> str:
    if exporter in proof.leaner:
        return "proven" if before.problem is None and after.nodes < before.nodes else "obsolete"
    if before.problem is None:
        return "obsolete"
    return "proven" if re.search(proof.reason, before.problem) else "unexplained"


def _past_bounds(trial: ProofTrial) -> str | None:
    if trial.seconds > MAX_SECONDS:
        return f"the export took {trial.seconds:.0f} s of processor time, at most {MAX_SECONDS:g} s are allowed"
    if trial.memory > MAX_MEMORY:
        return (
            f"an intermediate value has {trial.memory:.0f} times the bytes of inputs, outputs and weights together, "
            f"at most {MAX_MEMORY:g} times are allowed"
        )
    return None
