"""One trial export: what is exported (`Subject`), and its outcome (`Trial`).

The verdicts: right; silent (exported without an error, and wrong at some probe); refused (the exporter raised); slow
(cut off at its time limit); untested.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from onnxpatch.decisions.ask import Site
from onnxpatch.inputs.dynamic_shapes import LeafSpec
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.checks import Checked
from onnxpatch.verification.eager import Flatten
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.probe import Probe

if TYPE_CHECKING:
    import sympy
    from torch.onnx import ONNXProgram


Status = Literal["right", "silent", "refused", "slow", "untested"]
Stack = tuple[Site, ...]
"""Lines of the user's code, innermost first."""
Condition: TypeAlias = "sympy.Basic"


@dataclass
class Subject:
    """What is exported: a module (patched or not), its inputs, its dynamic axes, and probes with eager's results.

    strict: labels of the probes at which no difference is excused by eager's own unsteadiness.
    """

    model: torch.nn.Module
    inputs: Inputs
    specs: list[LeafSpec]
    probes: list[Probe]
    input_names: Sequence[str] | None = None
    flatten: Flatten | None = None
    strict: frozenset[str] = frozenset()


@dataclass
class Trial:
    """The outcome of one export.

    error, kind: the exporter's or runtime's text, and the class of its exception. places: the user's lines in the
    traceback, innermost last. warned: (stack, text) of tracer warnings. size_conditions: (condition, stack) of what
    torch.export fixed. printed: what the exporter wrote to stdout and stderr. checks: one for each probe.
    captured: the ExportedProgram that the dynamo exporter translates, or began with. program: its translation.
    feed: which leaf feeds each of the graph's inputs. symbols: of the dynamic sizes, where there is no
    ExportedProgram. fails_loose: a part fails also with sizes that torch.export may fix.
    caught: the model catches the error of a torch call, where a plain trace ends the process. folder: has the file.
    """

    status: Status = "right"
    error: str = ""
    kind: str = ""
    places: list[Site] = field(default_factory=list)
    warned: list[tuple[Stack, str]] = field(default_factory=list)
    size_conditions: list[tuple[Condition, Stack]] = field(default_factory=list)
    printed: str = ""
    checks: list[Checked] = field(default_factory=list)
    seconds: float = 0.0
    program: ONNXProgram | None = None
    captured: torch.export.ExportedProgram | None = None
    fails_loose: bool = False
    caught: bool = False
    symbols: list[str] = field(default_factory=list)
    graph: Graph | None = None
    feed: Feed = field(default_factory=lambda: Feed({}))
    folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def fails(self) -> bool:
        return self.status not in ("right", "untested")

    @property
    def untranslated(self) -> bool:
        """Whether the captured program was wrong already, so that it was never translated: there is no graph."""
        return self.status == "silent" and self.graph is None and bool(self.checks)

    def wrong_at(self) -> frozenset[str]:
        """Labels of the probes at which the graph is wrong."""
        return frozenset(check.label for check in self.checks if not check.ok)

    def first_wrong(self) -> Checked | None:
        return next((check for check in self.checks if not check.ok), None)


def as_patched(subject: Subject, plain: Trial) -> Subject:
    """The subject for trials under patches, where eager is patched too and its unsteadiness excuses nothing.

    Only probes at which the unpatched model was unsteady stay without a verdict.
    """
    unsteady = {check.label for check in plain.checks if check.status == "unsteady"}
    return dataclasses.replace(subject, strict=frozenset(probe.label for probe in subject.probes) - unsteady)
