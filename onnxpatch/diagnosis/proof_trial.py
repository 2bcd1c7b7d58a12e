"""One export of a proof's case, with a patch or without, compared with eager at every input of the proof.

The cases in which the patch must change nothing are captured with and without it: the graph is the same.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from onnxpatch._torch.one_export import one_export
from onnxpatch.errors import OnnxpatchError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.dynamo import capture
from onnxpatch.exporters.exported import run_exporter
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.onnxfile.graph import operator_counts
from onnxpatch.onnxfile.runtime import Graph, intermediate_values, load_graphs
from onnxpatch.onnxfile.runtimes.interface import DEFAULT_SECONDS
from onnxpatch.patched import patched
from onnxpatch.patching.forward_state import process_state_kept
from onnxpatch.patching.proof import Args, Proof
from onnxpatch.patching.registry import REGISTRY, Patch, Registry
from onnxpatch.process import filtered
from onnxpatch.settings import Exporter
from onnxpatch.verification.comparison import compare_all
from onnxpatch.verification.eager import flatten_output
from onnxpatch.verification.input_matching import feed_of

TOLERANCE = 1e-4  # of a float32 output: largest error, as a share of its largest magnitude


@dataclass(frozen=True)
class ProofTrial:
    """One export of the proof's case. problem: why it is refused or wrong, or None; below its first line, the error
    underneath.

    seconds: processor time of the export. memory: the largest intermediate value at the example, in bytes for each
    byte of inputs, outputs and weights. run: runs the file at the last input. eager_fails: the model itself cannot run
    the inputs with the installed versions.
    """

    problem: str | None
    nodes: int = 0
    seconds: float = 0.0
    memory: float = 0.0
    run: Callable[[], object] = field(default=lambda: None, repr=False)
    eager_fails: bool = False

    def __str__(self) -> str:
        return f"right, {self.nodes} nodes" if self.problem is None else self.problem.partition("\n")[0]


@process_state_kept()
def tried(
    proof: Proof,
    exporter: Exporter,
    patch: Patch | None = None,
    runtime: str | Sequence[str] | None = None,
    tolerance: float = TOLERANCE,
    providers: Sequence[str] | None = None,
) -> ProofTrial:
    """Export the proof's case with `patch` alone, or without any, and compare the file with eager at every input.

    "Alone" and "without" leave in place the patches that the proof names in `beside`.
    """
    model, examples = case(proof.build, proof.examples)
    try:
        wanted = _eager(model, examples)
    except Exception as error:  # an operator that eager has not in this dtype; a library with other arguments
        return ProofTrial(f"refused: eager itself: {_two_lines(error)}", eager_fails=True)
    patches = [*(REGISTRY[name] for name in proof.beside), *([patch] if patch else [])]
    with OutFile() as out, torch.no_grad():
        # Processor time: other work on the machine must not fail a proof.
        start = time.process_time()
        try:
            request = ExportRequest.parse(
                model, examples[0], None, exporter, dynamic_shapes=proof.specs(examples), opset_version=proof.opset
            )
            with _patched_by(patches, request):
                run_exporter(request, out.path)
        except OnnxpatchError as error:
            return ProofTrial(f"refused: {_two_lines(error)}")
        seconds = time.process_time() - start
        try:
            trial = ProofTrial("no runtime")
            for graph in load_graphs(out.path, runtime, DEFAULT_SECONDS, providers):
                trial = _compared(request, graph, examples, wanted, seconds, tolerance)
                if trial.problem is not None:
                    break
            return trial
        except OnnxpatchError as error:
            return ProofTrial(f"not run: {_two_lines(error)}")


def _patched_by(patches: Sequence[Patch], request: ExportRequest) -> contextlib.AbstractContextManager[object]:
    """The model with these patches and no other; as it is where there are none."""
    if not patches:
        return contextlib.nullcontext()
    registry = Registry()
    for patch in patches:
        registry.register(patch)
    return patched(request.model, exporter=request.exporter, opset=request.opset, registry=registry)


def _compared(
    request: ExportRequest,
    graph: Graph,
    examples: Sequence[Args],
    wanted: Sequence[list[torch.Tensor]],
    seconds: float,
    tolerance: float,
) -> ProofTrial:
    feed = feed_of(graph, request)
    for args, want in zip(examples, wanted, strict=True):
        values = feed.of(ExportRequest.parse(request.model, args, None, request.exporter).inputs.values())
        for parity in compare_all(graph.outputs, want, graph.run(values), tolerance):
            if parity.reason:
                return ProofTrial(f"wrong: {parity.name}: {parity.reason}")
    # What a stand-in makes between input and output, a matrix of all pairs say, is its memory.
    largest = max((a.nbytes for a in intermediate_values(graph, feed.of(request.inputs.values())).values()), default=0)
    given = [leaf for leaf in request.inputs.values() if isinstance(leaf, torch.Tensor)]
    needed = sum(t.nbytes for t in (*given, *wanted[0], *request.model.parameters(), *request.model.buffers()))
    return ProofTrial(
        None, operator_counts(graph.proto).total(), seconds, largest / max(needed, 1), lambda: graph.run(values)
    )


def case(build: Callable[[], torch.nn.Module], inputs: Callable[[], list[Args]]) -> tuple[torch.nn.Module, list[Args]]:
    # The same weights in every trial of a proof: what differs is the patch.
    torch.manual_seed(0)
    model = build().eval()
    return model, inputs()


def _eager(model: torch.nn.Module, examples: Sequence[Args]) -> list[list[torch.Tensor]]:
    with torch.no_grad():
        # Copies, since a forward may write into its buffers and inputs.
        return [flatten_output(copy.deepcopy(model)(*copy.deepcopy(args))) for args in examples]


def _two_lines(error: Exception) -> str:
    """What onnxpatch says of an export that failed, in one line, and the error underneath in another."""
    return "\n".join(" ".join(str(one).split())[:2000] for one in (error, error.__cause__) if one)


@process_state_kept()
def changed(proof: Proof, exporter: Exporter, patch: Patch) -> str | None:
    """Which case the patch changes, of those in which it must change nothing; None where it changes none."""
    if exporter == "script":  # scripting compiles the model's own code: the swap itself is the switch
        return None
    request = _of_an_ordinary_network(exporter)
    with _patched_by([patch], request):
        captured = _captured(request)
    if captured != _ordinary(exporter):
        return "it changes the graph of an ordinary network"
    fixed = proof.unchanged == "fixed sizes"
    if proof.unchanged is None or (fixed and exporter != "dynamo"):
        return None
    build = proof.build if isinstance(proof.unchanged, str) else proof.unchanged
    model, examples = case(build, proof.examples)
    request = ExportRequest.parse(
        model, examples[0], None, exporter,
        dynamic_shapes=None if fixed else proof.specs(examples), opset_version=proof.opset,
    )  # fmt: skip
    plain = _captured(request)
    with _patched_by([patch], request):
        same = _captured(request) == plain
    return None if same else "it changes the graph of the case in which it must change nothing"


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
