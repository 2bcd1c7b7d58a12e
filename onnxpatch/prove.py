"""Runs a patch's proof: its case is exported with this patch alone, and without any.

export without it   refused or wrong, for the reason that the proof names; or right with more nodes; or right and slower
export with it      right at every input, within the bounds on time and memory
the unchanged case  captured with and without the patch: the same graph
"""

from __future__ import annotations

import contextlib
import copy
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from onnxpatch.errors import OnnxpatchError
from onnxpatch.exporters.artifact import OutFile
from onnxpatch.exporters.dynamo import capture
from onnxpatch.exporters.exported import export
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.onnxfile.graph import histogram
from onnxpatch.onnxfile.intermediate_values import intermediate_values
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS
from onnxpatch.onnxfile.run_times import times_as_long
from onnxpatch.onnxfile.runtime import Graph, load_graphs
from onnxpatch.patched import patched
from onnxpatch.patching.proof import Args, Proof
from onnxpatch.patching.registry import REGISTRY, Patch, Registry
from onnxpatch.settings import Exporter, Settings
from onnxpatch.verification.comparison import compare_all
from onnxpatch.verification.eager import flatten_output
from onnxpatch.verification.input_matching import match_inputs

TOLERANCE = 1e-4  # of a float32 output: largest error, as a share of its largest magnitude
MAX_SECONDS = 60.0  # of the processor, for one export; a machine that does other work too does not change the verdict
MAX_MEMORY = 64.0  # bytes of the largest intermediate value, for each byte of inputs, outputs and weights


@dataclass(frozen=True)
class Outcome:
    """What one proof showed in one exporter. before, after: the export without and with the patch, in words.

    status: proven; failed (not right with the patch, or past a bound); obsolete (as good without it); unexplained
    (fails without it, for another reason than the proof names); refused (the patch's conditions are not met here).
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


@dataclass(frozen=True)
class Trial:
    """One export of the proof's case. problem: why it is refused or wrong, or None.

    seconds: processor time of the export. memory: the largest intermediate value at the example, in bytes for each
    byte of inputs, outputs and weights. run: runs the file at the last input.
    """

    problem: str | None
    nodes: int = 0
    seconds: float = 0.0
    memory: float = 0.0
    run: Callable[[], object] = field(default=lambda: None, repr=False)

    def __str__(self) -> str:
        return f"right, {self.nodes} nodes" if self.problem is None else self.problem


def prove(patch: Patch, exporter: Exporter, runtime: str | Sequence[str] | None = None) -> Outcome:
    """Run the proof of `patch` in one exporter that it serves. Raises ValueError where it has no proof.

    runtime: what the files run in, as `export` takes it.
    """
    proof = patch.proof
    if proof is None:
        raise ValueError(f"{patch.name} carries no proof")
    refusal = patch.conditions.refusal(Settings(exporter, proof.opset))
    if refusal:
        return Outcome("refused", after=refusal)
    after = tried(proof, exporter, patch, runtime)
    problem = after.problem or _past_bounds(after) or changed(proof, exporter, patch)
    if problem:
        return Outcome("failed", after=problem)
    if exporter not in (*proof.fails, *proof.leaner, *proof.slower):
        return Outcome("proven", after=str(after))
    before = tried(proof, exporter, runtime=runtime)
    if exporter in proof.slower and before.problem is None:
        return _timed(proof.slower[exporter], before, after)
    return Outcome(_verdict(proof, exporter, before, after), str(before), str(after))


def _timed(least: float, before: Trial, after: Trial) -> Outcome:
    found = times_as_long(before.run, after.run)
    return Outcome("proven" if found >= least else "obsolete", f"{before}, {found:.2f} times as long", str(after))


def _verdict(proof: Proof, exporter: Exporter, before: Trial, after: Trial) -> str:
    if exporter in proof.leaner:
        return "proven" if before.problem is None and after.nodes < before.nodes else "obsolete"
    if before.problem is None:
        return "obsolete"
    return "proven" if re.search(proof.reason, before.problem) else "unexplained"


def _past_bounds(trial: Trial) -> str | None:
    if trial.seconds > MAX_SECONDS:
        return f"the export took {trial.seconds:.0f} s of processor time, at most {MAX_SECONDS:g} s are allowed"
    if trial.memory > MAX_MEMORY:
        return (
            f"an intermediate value has {trial.memory:.0f} times the bytes of inputs, outputs and weights together, "
            f"at most {MAX_MEMORY:g} times are allowed"
        )
    return None


def tried(
    proof: Proof, exporter: Exporter, patch: Patch | None = None, runtime: str | Sequence[str] | None = None
) -> Trial:
    """Export the proof's case with `patch` alone, or without any, and compare the file with eager at every input.

    "Alone" and "without" leave in place the patches that the proof names in `beside`.
    """
    model, examples = _case(proof.build, proof.examples)
    wanted = _eager(model, examples)
    patches = [*(REGISTRY[name] for name in proof.beside), *([patch] if patch else [])]
    with OutFile() as out, torch.no_grad():
        start = time.process_time()
        try:
            request = ExportRequest.parse(
                model, examples[0], None, exporter, dynamic_shapes=proof.dynamic_shapes, opset_version=proof.opset
            )
            with _patched_by(patches, request):
                export(request, out.path)
        except OnnxpatchError as error:
            return Trial(f"refused: {_one_line(error)}")
        seconds = time.process_time() - start
        try:
            trial = Trial("no runtime")
            for graph in load_graphs(out.path, runtime, DEFAULT_SECONDS, None):
                trial = _compared(request, graph, examples, wanted, seconds)
                if trial.problem is not None:
                    break
            return trial
        except OnnxpatchError as error:
            return Trial(f"not run: {_one_line(error)}")


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
) -> Trial:
    feed = match_inputs(graph, request.inputs, request.names_among([one.name for one in graph.inputs]))
    for args, want in zip(examples, wanted, strict=True):
        values = feed.of(ExportRequest.parse(request.model, args, None, request.exporter).inputs.values())
        for parity in compare_all(graph.outputs, want, graph.run(values), TOLERANCE):
            if parity.reason:
                return Trial(f"wrong: {parity.name}: {parity.reason}")
    largest = max((a.nbytes for a in intermediate_values(graph, feed.of(request.inputs.values())).values()), default=0)
    given = [leaf for leaf in request.inputs.values() if isinstance(leaf, torch.Tensor)]
    needed = sum(t.nbytes for t in (*given, *wanted[0], *request.model.parameters(), *request.model.buffers()))
    return Trial(None, histogram(graph.proto).total(), seconds, largest / max(needed, 1), lambda: graph.run(values))


def changed(proof: Proof, exporter: Exporter, patch: Patch) -> str | None:
    """Which case the patch changes, of those in which it must change nothing; None where it changes none."""
    if exporter == "script":  # scripting compiles the model's own code: the swap itself is the switch
        return None
    model, examples = _case(Ordinary, Ordinary.examples)
    if _captures_differ(ExportRequest.parse(model, examples[0], None, exporter, dynamic_shapes=Ordinary.SIZES), patch):
        return "it changes the graph of an ordinary network"
    fixed = proof.unchanged == "fixed sizes"
    if proof.unchanged is None or (fixed and exporter != "dynamo"):
        return None
    build = proof.build if isinstance(proof.unchanged, str) else proof.unchanged
    model, examples = _case(build, proof.examples)
    shapes = None if fixed else proof.dynamic_shapes
    if _captures_differ(
        ExportRequest.parse(model, examples[0], None, exporter, dynamic_shapes=shapes, opset_version=proof.opset), patch
    ):
        return "it changes the graph of the case in which it must change nothing"
    return None


class Ordinary(torch.nn.Module):
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
        hidden = torch.nn.functional.gelu(self.hidden(pooled.mean((2, 3))))
        return torch.softmax(self.out(hidden + hidden.sigmoid()), -1), torch.cat((pooled[:, :4], pooled[:, 4:]), 1)


def _captures_differ(request: ExportRequest, patch: Patch) -> bool:
    plain = _captured(request)
    with _patched_by([patch], request):
        return _captured(request) != plain


def _captured(request: ExportRequest) -> str:
    """The graph that the exporter would translate, without the lines and modules that its nodes came from."""
    if request.exporter == "dynamo":
        return str(capture(request.model, request.inputs, request.specs).graph)
    args, _ = request.inputs.rebuild(request.inputs.values())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(request.model, args, check_trace=False)
    text = re.sub(r"__torch__[\w.]*|, scope: .*|(?m: # .*$)", "", str(traced.inlined_graph))
    # Names of values carry a count over the whole process: number them by where they first come.
    numbers: dict[str, int] = {}
    return re.sub(r"%[\w.]+", lambda name: f"%{numbers.setdefault(name[0], len(numbers))}", text)


def _case(build: Callable[[], torch.nn.Module], inputs: Callable[[], list[Args]]) -> tuple[torch.nn.Module, list[Args]]:
    torch.manual_seed(0)
    model = build().eval()
    return model, inputs()


def _eager(model: torch.nn.Module, examples: Sequence[Args]) -> list[list[torch.Tensor]]:
    with torch.no_grad():
        return [flatten_output(copy.deepcopy(model)(*copy.deepcopy(args))) for args in examples]


def _one_line(error: Exception) -> str:
    """What onnxpatch says of an export that failed, in one line, with the error underneath."""
    return " ".join(f"{error} {error.__cause__ or ''}".split())[:2000]
