"""The state of one export of one model with branches: which forwards run, and who decides for them.

One `Capture` exists for each run of the root's forward under an exporter. Torch calls come in through `execute`, bools
that depend on data through `decide`; both go to the explorers, one for each forward that runs now, the innermost last.
`recording` has the calls, `optional_outputs` the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import torch

from onnxpatch.control_flow.example_fallback import ExampleFallback
from onnxpatch.control_flow.optional_outputs import BranchReport, DeclaredOutputs
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.recording import ListLengths, Recording, latest, running
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.decisions.ask import here

BranchForm = Literal["auto", "if", "where"]
ArgsT = TypeVar("ArgsT")


class Capture(Recording):
    """One run of a root model under an exporter. form: how branches are written."""

    explorers: list[PathExplorer]

    def __init__(
        self, path_of: Callable[[torch.nn.Module], str], max_paths: int, form: BranchForm, report: BranchReport
    ) -> None:
        super().__init__(path_of, max_paths, report)
        self.form, self.explorers = form, []
        self.delegating: set[int] = set()  # ids of modules whose decisions belong to the module that calls them
        self.inputs: list[torch.Tensor] = []
        self.outputs = DeclaredOutputs()
        self.list_lengths, self.sizes = ListLengths(self), ExampleFallback(self)
        # By id of a row that `tensor[i]` copied and that is a view in eager: (tensor, index).
        self.rows_taken: dict[int, tuple[torch.Tensor, object]] = {}
        self.counters: set[int] = set()  # ids of tensors that are ints in eager: the indices of loops

    def begin(self, inputs: list[torch.Tensor]) -> None:
        """Note the tensors that the root is called with."""
        self.inputs = inputs
        self.shadow = SymbolicShadow(inputs) if self.exporter == "trace" else None

    def explorer(self, module: torch.nn.Module, call: Callable[[], object]) -> PathExplorer:
        """What explores the paths of one call of a module."""
        return PathExplorer(self, self.list_lengths, self.sizes, module, call)

    def decide(self, predicate: torch.Tensor, condition: torch.SymBool | None = None) -> bool:
        """Answer a bool that depends on data: the innermost explorer chooses the path."""
        site = here()
        if id(predicate) in self.random:
            raise self.refusal(
                site,
                "forward branches on a random number",
                remedy="draw the number outside the model and pass it in as an input",
            )
        return self.explorers[-1].decide(predicate, site, condition)

    def delegate(self, explorer: PathExplorer) -> None:
        """Let the calling module make this module's decisions from now on; its own search starts over."""
        self.delegating.add(id(explorer.module))
        caller = self.explorers[self.explorers.index(explorer) - 1]
        caller.restart = True

    # ---- loops

    def with_updates(self, values: ArgsT) -> ArgsT:
        """The arguments of a call, with what stands for the tensors that loops have updated in place."""
        for explorer in self.explorers:
            values = explorer.loops.updated.in_call(self, values)
        return values

    def looping(self) -> PathExplorer | None:
        """The outermost explorer in which a loop on data runs now."""
        return next((explorer for explorer in self.explorers if explorer.loops.running is not None), None)

    def check_len(self, container: object) -> None:
        """Refuse `len` of a list that a loop fills: it has as many entries as rounds were run, not as the input has."""
        for loop in (loop for explorer in self.explorers for loop in explorer.loops.all):
            if loop.rounds_in(container) > 1:
                raise loop.refusal("len() of a list that it fills depends on the number of rounds")

    def check_counter(self, tensor: torch.Tensor, use: str) -> None:
        """Refuse a loop's index as a key or as text: it is a tensor here, and an int in eager."""
        # `i + 1` is another tensor than the index: while a loop runs, every 0-d whole number may come from it.
        looping = any(not loop.done for explorer in self.explorers for loop in explorer.loops.all)
        if id(tensor) in self.counters or (tensor.dim() == 0 and not tensor.is_floating_point() and looping):
            raise self.refusal(
                here(),
                f"in a loop whose number of rounds depends on the input, the loop's index is used as {use}",
                remedy="look values up in a tensor (table[i]), and leave text to code that is not exported",
            )


def current_capture(paused: bool = False) -> Capture | None:
    """The innermost capture of this thread; None where none runs, or it is paused. paused: a paused one too."""
    found = latest() if paused else running()
    return found if isinstance(found, Capture) else None
