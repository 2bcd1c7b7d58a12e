"""Refusals of one export with branches: module path, source line, what was found, what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch

from onnxpatch.decisions.place import Site, here, line_of
from onnxpatch.errors import BranchError


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
