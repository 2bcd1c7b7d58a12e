"""The cases of a proof in which the patch must change nothing: captured with and without it, the graph is the same."""

from __future__ import annotations

import functools
import re

import torch

from onnxpatch._torch.one_export import one_export
from onnxpatch.diagnosis.proof_trial import case, patched_by
from onnxpatch.exporters.dynamo import capture
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.patching.process_state import process_state_kept
from onnxpatch.patching.proof import Args, Proof
from onnxpatch.patching.registry import Patch
from onnxpatch.process import filtered
from onnxpatch.settings import Exporter


@process_state_kept()
def changed(proof: Proof, exporter: Exporter, patch: Patch) -> str | None:
    """Which case the patch changes, of those in which it must change nothing; None where it changes none."""
    if exporter == "script":  # scripting compiles the model's own code: the swap itself is the switch
        return None
    request = _of_an_ordinary_network(exporter)
    with patched_by([patch], request):
        captured = _captured(request)
    if captured != _ordinary(exporter):
        return "it changes the graph of an ordinary network"
    fixed = proof.unchanged == "fixed sizes"
    if proof.unchanged is None or (fixed and exporter != "dynamo"):
        return None
    build = proof.build if isinstance(proof.unchanged, str) else proof.unchanged
    model, examples = case(build, proof.examples)
    shapes = None if fixed else proof.specs(examples)
    if _captures_differ(
        ExportRequest.parse(model, examples[0], None, exporter, dynamic_shapes=shapes, opset_version=proof.opset), patch
    ):
        return "it changes the graph of the case in which it must change nothing"
    return None


def _of_an_ordinary_network(exporter: Exporter) -> ExportRequest:
    model, examples = case(_Ordinary, _Ordinary.examples)
    return ExportRequest.parse(model, examples[0], None, exporter, dynamic_shapes=_Ordinary.SIZES)


@functools.cache
def _ordinary(exporter: Exporter) -> str:
    """Its graph without any patch: the same for all patches."""
    return _captured(_of_an_ordinary_network(exporter))


class _Ordinary(torch.nn.Module):
    """A small network of common layers, which both exporters get right at any size."""

    SIZES = ({0: "batch", 2: "height", 3: "width"},)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.hidden, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)

    @staticmethod
    def examples() -> list[Args]:
        """One batch of two images."""
        return [(torch.randn(2, 3, 8, 8),)]

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch, 3, height, width) to probabilities (batch, 4) and a pooled map (batch, 8, height / 2, width / 2)."""
        pooled = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(image))), 2)
        hidden = torch.nn.functional.silu(self.hidden(pooled.mean((2, 3))))
        return torch.softmax(self.out(hidden + hidden.sigmoid()), -1), torch.cat((pooled[:, :4], pooled[:, 4:]), 1)


def _captures_differ(request: ExportRequest, patch: Patch) -> bool:
    plain = _captured(request)
    with patched_by([patch], request):
        return _captured(request) != plain


def _captured(request: ExportRequest) -> str:
    """The graph that the exporter would translate, without the lines and modules that its nodes came from."""
    if request.exporter == "dynamo":
        # As text: two graphs of fx have no comparison.
        return str(capture(request.model, request.inputs, request.specs).graph)
    args, _ = request.inputs.rebuild(request.inputs.values())
    with one_export(), filtered("ignore"), torch.no_grad():
        traced = torch.jit.trace(request.model, args, check_trace=False)
    text = re.sub(r"__torch__[\w.]*|, scope: .*|(?m: # .*$)", "", str(traced.inlined_graph))
    # Names of values carry a count over the whole process: number them by where they first come.
    numbers: dict[str, int] = {}
    return re.sub(r"%[\w.]+", lambda name: f"%{numbers.setdefault(name[0], len(numbers))}", text)
