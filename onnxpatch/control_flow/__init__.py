"""Python branches on tensor values and dynamic sizes, exported whole: every path is run, the results are merged.

`install` is called by `patched(model, branches=True)`. While the model runs under an exporter, a bool that depends on
data is a decision of the innermost module's forward; that forward is run once per path, and what the paths return is
merged by `Where` or `If`.

Start at `forked_forward.run_module`. `path_explorer` runs the paths, `capture` holds the state of one export, `tape`
the calls of a path; `scalar_conversions` and `size_decisions` answer bools and numbers; `merging`, `loops` and
`optional_outputs` are the rest. May import `patching`, `onnxfile`, `inputs`, `_torch`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from onnxpatch._torch import exporting
from onnxpatch.control_flow.builtin_hooks import prepared
from onnxpatch.control_flow.capture import BranchReport, Capture
from onnxpatch.control_flow.current_capture import latest
from onnxpatch.control_flow.forked_forward import declaring, run_module, run_root
from onnxpatch.control_flow.module_containers import CONTAINERS, Choosing
from onnxpatch.control_flow.optional_outputs.decorator import marked
from onnxpatch.patching.swap import UndoLog, class_before, mixins_of
from onnxpatch.patching.walk import modules
from onnxpatch.settings import Settings

_FORMS = ("auto", "if", "where")


def install(model: torch.nn.Module, settings: Settings, log: UndoLog, example: Any = None) -> BranchReport:
    """Give every module of the user's a forward that forks under an exporter; `log` takes it out again.

    settings.options: `max_paths` (64), the most paths one call of one module may have; `branch_form`, one of "auto"
    (by cost), "if" and "where"; `rewritten`: see `BranchReport`.
    """
    limit = int(settings.options.get("max_paths", 64))
    form = settings.options.get("branch_form", "auto")
    if form not in _FORMS:
        raise ValueError(f"branch_form={form!r}: use one of {', '.join(map(repr, _FORMS))}")
    report = BranchReport(rewritten=bool(settings.options.get("rewritten")))
    if settings.exporter == "script":
        return report
    paths = {id(module): path for path, module in reversed(list(modules(model)))}

    substitutions = prepared(model)

    def run(module: torch.nn.Module, call: Any, args: Any) -> Any:
        capture = Capture(lambda module: paths.get(id(module), "?"), limit, form, report)
        return run_root(capture, module, call, args, substitutions)

    mixins: dict[type, type] = {}
    for module in {id(module): module for _, module in modules(model)}.values():
        cls = type(module)
        if module is model:
            log.specialise(module, _mixin(cls, run, report))
        elif type(module) in CONTAINERS:
            log.specialise(module, Choosing)
        elif _decides(module):
            if cls not in mixins:
                mixins[cls] = _mixin(cls)
            log.specialise(module, mixins[cls])
    return report


def report_of(model: torch.nn.Module) -> BranchReport | None:
    """What forking did to a model that is patched with `branches=True`, after an export."""
    return next(
        (vars(mixin)["onnxpatch_report"] for mixin in mixins_of(type(model)) if "onnxpatch_report" in vars(mixin)), None
    )


def _decides(module: torch.nn.Module) -> bool:
    """Whether a module's forward may hold branches of the user's: torch's own layers have none."""
    return not class_before(type(module)).__module__.startswith("torch.")


def _mixin(cls: type, run: Any = None, report: BranchReport | None = None) -> type:
    declared = marked(cls)

    class Forked:
        @functools.wraps(cls.forward)  # type: ignore[attr-defined]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            call: Any = functools.partial(super().forward, *args, **kwargs)  # type: ignore[misc]
            if declared is not None:
                call = functools.partial(declaring, call, declared, args, kwargs)
            if exporting() is None:
                return call()
            capture = latest()
            if capture is None:
                return run(self, call, (args, kwargs)) if run is not None else call()
            return call() if capture.paused else run_module(capture, self, call)  # type: ignore[arg-type]

    if report is not None:
        Forked.onnxpatch_report = report  # type: ignore[attr-defined]
    return Forked


__all__ = ["BranchReport", "install", "report_of"]
