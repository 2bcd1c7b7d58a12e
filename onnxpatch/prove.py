"""Running a patch's proof: right with it, and wrong, refused or fatter without it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.errors import ExportError, OnnxpatchError, VerificationError
from onnxpatch.export import export
from onnxpatch.onnxfile.graph import histogram
from onnxpatch.patching.registry import Patch
from onnxpatch.settings import Exporter, Settings


@dataclass(frozen=True)
class Outcome:
    """What one proof showed in one exporter. before, after: the export without and with the patch, in words.

    status: proven; failed (not right with the patch); obsolete (as good without it); refused (conditions not met here).
    """

    status: str
    before: str = ""
    after: str = ""

    @property
    def holds(self) -> bool:
        return self.status in ("proven", "refused")

    @property
    def sentence(self) -> str:
        told = f"without it {self.before}, with it {self.after}" if self.before else self.after
        return f"{self.status} ({told})" if told else self.status


def prove(patch: Patch, exporter: Exporter, runtime: str | Sequence[str] | None = None) -> Outcome:
    """Run the proof of `patch` in one exporter that it serves. Raises ValueError where it has no proof.

    runtime: as `export` takes it.
    """
    if patch.proof is None:
        raise ValueError(f"{patch.name} carries no proof")
    refusal = patch.conditions.refusal(Settings(exporter, patch.proof.opset))
    if refusal:
        return Outcome("refused", after=refusal)
    after, nodes = _exported(patch, exporter, {"runtime": runtime})
    if nodes is None:
        return Outcome("failed", after=after)
    if exporter not in (*patch.proof.fails, *patch.proof.leaner):
        return Outcome("proven", after=after)
    before, fatter = _exported(patch, exporter, {"exclude": patch.name, "runtime": runtime})
    # `fatter` is None where it is not right without the patch: at sizes of its own choosing, export may find that a
    # plain file is wrong which the proof knows as larger only.
    gained = fatter is None or (exporter in patch.proof.leaner and nodes < fatter)
    return Outcome("proven" if gained else "obsolete", before, after)


def _exported(patch: Patch, exporter: Exporter, options: dict[str, Any]) -> tuple[str, int | None]:
    """(in words, number of nodes or None where it is wrong or refused)."""
    import onnx

    proof = patch.proof
    assert proof is not None
    torch.manual_seed(0)
    model, examples, file = proof.build().eval(), proof.examples(), io.BytesIO()
    try:
        export(
            model,
            examples[0],
            file,
            kwargs=proof.kwargs or None,
            dynamic_shapes=proof.dynamic_shapes,
            opset_version=proof.opset,
            exporter=exporter,
            data=examples[1:],
            tolerance=proof.tolerance,
            max_probes=1,
            attempts="asked",
            **{**proof.options, **options},
        )
    except ExportError as error:
        return f"refused: {_first_line(error)}", None
    except VerificationError as error:
        return f"wrong: {_first_line(error)}", None
    except OnnxpatchError as error:
        return f"not run: {_first_line(error)}", None
    nodes = histogram(onnx.load_from_string(file.getvalue())).total()
    return f"right, {nodes} nodes", nodes


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
