"""What an export with `branches=True` tells: modules that branched, paths run and dropped, merged outputs, refusals.

A refusal has the module's path, the source line, what was found, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from onnxpatch.control_flow.optional_outputs import OutputSlot
from onnxpatch.decisions.ask import Site, here, line_of
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


class Running(Protocol):
    """A forward that runs now."""

    @property
    def module(self) -> torch.nn.Module: ...


class Refusals:
    """path_of: names a module for messages. explorers: the forwards that run now, the innermost last. refused: the
    first refusal so far."""

    explorers: Sequence[Running]

    def __init__(self, path_of: Callable[[torch.nn.Module], str]) -> None:
        self.path_of = path_of
        self.refused: BranchError | None = None

    def refusal(
        self, site: Site | None, found: str, *, remedy: str, module: torch.nn.Module | None = None
    ) -> BranchError:
        """The error to raise. module: None for the innermost one that runs."""
        module = module if module is not None else self.explorers[-1].module
        path = self.path_of(module) or "(root)"
        error = BranchError(f"{path} ({type(module).__name__}), {site or here()}: {found}; {remedy}")
        # A model may catch the error and go on. The first refusal is the cause; later ones follow from it.
        self.refused = self.refused or error
        return error

    def too_many_paths(self, module: torch.nn.Module, asked: Iterable[Site], most: int) -> BranchError:
        """The refusal for a module with more than `most` paths. asked: the lines that decide."""
        sites = list(asked)
        lines = ", ".join(dict.fromkeys(f"line {site.line}" for site in sites))
        return self.refusal(
            sites[0] if sites else None,
            f"more than {most} paths; forward branches at {lines}",
            module=module,
            remedy="put the parts that branch into modules of their own (paths multiply inside a module only), or "
            "raise max_paths=",
        )

    def failed_path(self, module: torch.nn.Module, error: Exception) -> BranchError:
        """The refusal of a path that fails because of the example."""
        text = " ".join(str(error).split())[:300]
        return self.refusal(
            line_of(error),
            f"a branch that the example does not take cannot be run with it: {type(error).__name__}: {text}",
            module=module,
            remedy="export with an example that fits both branches, or write the branch so that it fits every input",
        )
