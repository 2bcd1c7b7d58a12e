"""What exporting with `branches=True` did: modules that branched, paths run, paths dropped, the merged outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxpatch.control_flow.optional_outputs.reference import OutputSlot
from onnxpatch.errors import BranchError
from onnxpatch.onnxfile.output_structure import Tree


@dataclass
class Dropped:
    """A path that ended in a `raise` or a failed `assert`: it is not in the graph."""

    module: str
    line: str
    error: str


@dataclass
class BranchReport:
    """What exporting with `branches=True` did. Modules are named by their path, "" for the root.

    decided: source lines of each module's decisions. paths: how many paths each module has. notes: what the graph does
    differently from the model. outputs, layout: the merged output, flat and as a tree. rewritten: onnxpatch edits the
    file after the export, so that the graph may promise what the exporter itself cannot write. compared: the file is
    going to be compared with eager. settled: why modules have the example's answers to conditions on sizes.
    """

    decided: dict[str, list[str]] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs: list[OutputSlot] = field(default_factory=list)
    layout: Tree | None = None
    rewritten: bool = False
    compared: bool = False
    settled: list[BranchError] = field(default_factory=list)
    # Compiled functions that the traced graph refers to without owning them: they live as long as the model is patched.
    compiled: list[object] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        lines = [
            f"{path or '(root)'}: {self.paths[path]} paths, decided at {', '.join(at)}"
            for path, at in self.decided.items()
        ]
        lines += [f"dropped: {d.module or '(root)'}, {d.line}: {d.error}" for d in self.dropped]
        return "\n".join([*lines, *self.notes]) or "No branch depends on data or on a dynamic size."
