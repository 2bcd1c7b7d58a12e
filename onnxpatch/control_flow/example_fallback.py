"""Conditions on sizes that are answered as in the example, since their other side cannot be exported with it.

A condition on sizes is a decision with two paths. The side that the example does not take may fail with it, or a module
has more paths than are allowed. Without branches the exporter takes the example's answer, which is often right at every
size: the other side is never reached, or does the same. So the module runs again with these answers, and the file is
compared with eager as ever:

    if x.shape[1] == self.table.shape[1]:       the example is shorter: `x + self.table` cannot run with it
        x = x + self.table

This is done only if the file is compared afterwards; otherwise the module is refused. If the file turns out wrong, the
export is refused with the error that led here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

import torch

from onnxpatch._torch.cond import conclusions, constant_answer, hint_of, suppressed_guards
from onnxpatch._torch.function_modes import unseen
from onnxpatch._torch.relied_on import explain
from onnxpatch._torch.symbolic_sizes import traced_from_sizes
from onnxpatch.control_flow.recording import Recording
from onnxpatch.decisions.ask import Site
from onnxpatch.decisions.functions_run import raised_on_purpose
from onnxpatch.errors import BranchError


def _nothing() -> None:
    """Forgets nothing: under trace, torch concludes nothing about sizes."""


class ExampleFallback:
    """The modules of one capture whose conditions on sizes are answered as in the example."""

    def __init__(self, capture: Recording) -> None:
        self._capture = capture
        # By id of each module that has such a condition: a function that makes torch forget what it concluded since.
        self._asked: dict[int, Callable[[], None]] = {}
        self._settled: set[int] = set()

    def answer(self, condition: torch.Tensor | torch.SymBool) -> bool | None:
        """The example's answer to a condition on sizes in a settled module; None where it is a decision."""
        module = id(self._capture.explorers[-1].module)
        if module not in self._settled:
            if module not in self._asked:
                self._asked[module] = _nothing if isinstance(condition, torch.Tensor) else conclusions(condition)
            return None
        if isinstance(condition, torch.Tensor):
            with unseen():
                return bool(condition)
        # torch's own, which answers at the example's size and adds a guard.
        return bool(inspect.unwrap(torch.SymBool.__bool__)(condition))

    def on_sizes(self, predicate: torch.Tensor) -> bool:
        """Whether a predicate was computed from sizes alone, under trace, where it is a tensor like any other."""
        shadow = self._capture.shadow
        if shadow is None:
            return False
        return shadow.is_condition(predicate) or (shadow.get(predicate) is None and traced_from_sizes(predicate))

    def settle(self, module: torch.nn.Module, error: Exception) -> bool:
        """Answer a module's conditions from now on, because of an error; False where that would change nothing."""
        report = self._capture.report
        forget = self._asked.pop(id(module), None)
        if not report.compared or forget is None or raised_on_purpose(error):
            return False
        forget()
        self._settled.add(id(module))
        path = self._capture.path_of(module) or "(root)"
        # The traceback, which tells whether a private API is missing, is not kept: it would keep the graph alive.
        said = explain(error) or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        text = f"{path} ({type(module).__name__}): {said}"
        report.settled.append(error if isinstance(error, BranchError) else BranchError(text))
        return True


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
