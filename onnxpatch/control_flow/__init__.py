"""Exports Python branches on tensor values and dynamic sizes: every path is run, and the results are merged.

`install` is called by `patched(model, branches=True)`. While the model runs under an exporter, each of the user's
modules whose forward asks for a bool that depends on data has that forward run once per path, and what the paths return
is merged by `Where` or `If`:

    def forward(self, x):
        if x.sum() > 0:             run 1: answer True  -> x * 2
            return x * 2            run 2: answer False -> -x
        return -x                   graph: Where(sum > 0, x * 2, -x)

Start at `forked_forward.run_root`. `path_explorer` runs the paths, `capture` is the state of one export, `recording`
and `tape` have the calls of a path; `answers` are those to bools and numbers; `merging`, `loops` and `flat_outputs` are
the rest. May import `patching`, `onnxfile`, `inputs`, `messages`, `_torch`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import unused_removed
from onnxpatch.control_flow.answers import prepared
from onnxpatch.control_flow.capture import BranchForm, Capture, current_capture
from onnxpatch.control_flow.forked_forward import Call, run_declared, run_module, run_root
from onnxpatch.control_flow.indexing import container_mixin
from onnxpatch.control_flow.optional_outputs import BranchReport, mark_of
from onnxpatch.errors import InputError
from onnxpatch.inputs.modules import modules
from onnxpatch.patching.generated import class_before, mixins_of
from onnxpatch.settings import Settings

Specialise = Callable[[torch.nn.Module, type], None]
RunRoot = Callable[[torch.nn.Module, Call, object], object]
_FORMS: tuple[BranchForm, ...] = ("auto", "if", "where")


def install(model: torch.nn.Module, settings: Settings, specialise: Specialise, example: object = None) -> BranchReport:
    """Give each of the user's modules a forward that runs all paths under an exporter, by `specialise`.

    settings.options: `max_paths` (64), the most paths of one call of one module; `branch_form`, "auto" (the cheaper),
    "if" or "where"; `rewritten` and `compared`: see `BranchReport`. example: not needed, branches are found while the
    exporter runs.
    Raises ValueError for another branch_form.
    """
    max_paths, form = int(settings.options.get("max_paths", 64)), settings.options.get("branch_form", "auto")
    if form not in _FORMS:
        raise ValueError(f"branch_form={form!r}: use one of {', '.join(map(repr, _FORMS))}")
    rewritten, compared = (bool(settings.options.get(name)) for name in ("rewritten", "compared"))
    report = BranchReport(rewritten=rewritten, compared=compared)
    if settings.exporter == "script":  # torch.jit.script compiles branches itself
        return report
    # Reversed, since a shared module comes once for each of its names, and its first name is its path.
    paths = {id(module): path for path, module in reversed(list(modules(model)))}
    substitutions = prepared(model)

    def run(module: torch.nn.Module, call: Call, args: object) -> object:
        capture = Capture(lambda module: paths.get(id(module), "?"), max_paths, form, report)
        return run_root(capture, module, call, args, substitutions)

    _specialise(model, specialise, _mixin(type(model), run, report))
    return report


def _specialise(model: torch.nn.Module, specialise: Specialise, root_mixin: type) -> None:
    mixins: dict[type, type] = {}
    # Once for each object: with two mixins, a shared module would have its paths explored inside its paths.
    for module in {id(module): module for _, module in modules(model)}.values():
        cls = type(module)
        if module is model:
            specialise(module, root_mixin)
        elif (mixin := container_mixin(cls)) is not None:
            specialise(module, mixin)
        elif _may_branch(module):
            if cls not in mixins:
                mixins[cls] = _mixin(cls)
            # Of a class that takes no subclass, the branches are explored with those of the module that calls it.
            with contextlib.suppress(InputError):
                specialise(module, mixins[cls])


def report_of(model: torch.nn.Module) -> BranchReport | None:
    """The report of a model that is patched with `branches=True`, filled by its exports; None for other models."""
    return next(
        (vars(mixin)["onnxpatch_report"] for mixin in mixins_of(type(model)) if "onnxpatch_report" in vars(mixin)), None
    )


def _may_branch(module: torch.nn.Module) -> bool:
    """Whether a module's forward is the user's: torch's own layers have no branches on data."""
    return not class_before(type(module)).__module__.startswith("torch.")


def _mixin(cls: type, run: RunRoot | None = None, report: BranchReport | None = None) -> type:
    """A class to put in front of `cls`, whose forward runs all paths. run: for the root, starts a capture."""
    marked = mark_of(cls) is not None

    class Forked:
        # Exporters name the graph's inputs after the parameters of forward: `wraps` keeps its signature.
        @functools.wraps(cls.forward)  # type: ignore[attr-defined]
        def forward(self, *args: object, **kwargs: object) -> object:
            call: Call = functools.partial(super().forward, *args, **kwargs)  # type: ignore[misc]
            if marked:
                call = functools.partial(run_declared, call, cls, args, kwargs)
            # The model stays patched between exports, and runs as in eager then.
            if exporting() is None:
                return call()
            capture = current_capture(paused=True)
            # A submodule that is exported by itself has no root above it that could collect its paths.
            if capture is None:
                return run(self, call, (args, kwargs)) if run is not None else call()  # type: ignore[arg-type]
            # Paused: the body of an `onnxpatch.scan`, say, which runs as one recorded call.
            return call() if capture.paused else run_module(capture, self, call)  # type: ignore[arg-type]

    if report is not None:
        Forked.onnxpatch_report = report  # type: ignore[attr-defined]
    return Forked


__all__ = ["BranchReport", "install", "report_of", "unused_removed"]
