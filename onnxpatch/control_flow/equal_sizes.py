"""Takes sizes for equal on one path, `if h == w`, without a guard that would hold for the whole export.

On the side of `h == w` the calls need equal sizes, and torch.export would record a guard for it: the other side of the
branch would be lost. Where the example's sizes are equal, guards are suppressed for the rest of the path. Where they
differ, the calls may still make torch.export take the sizes for equal for good; that is found at the end of the path.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

import torch

from onnxpatch._torch.cond import constant_answer, hint_of, suppressed_guards
from onnxpatch.decisions.place import Site


class EqualSizes:
    """The sizes that one path takes for equal. As a context manager, it ends the suppression of guards."""

    def __init__(self) -> None:
        self._guards = ExitStack()
        self._assumed: list[tuple[torch.SymBool, Site]] = []

    def assume(self, condition: torch.SymBool, answer: bool, site: Site) -> None:
        """Take sizes for equal from here to the end of the path. answer: of the condition, on this path."""
        # Guards can be suppressed only where the example fits: torch.export goes on with its sizes.
        if hint_of(condition) is answer:
            self._guards.enter_context(suppressed_guards(condition))
        else:
            self._assumed.append((condition, site))

    def made_permanent(self) -> tuple[torch.SymBool, Site] | None:
        """A condition, and its line, that torch.export has fixed since it was assumed; None where none was."""
        return next((pair for pair in self._assumed if constant_answer(pair[0]) is not None), None)

    def __enter__(self) -> EqualSizes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._guards.close()
