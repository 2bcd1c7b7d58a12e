"""A program as torch.export captured it, held against eager's answers the way its ONNX graph would be: without the
conditions on sizes under which it was captured, which no graph keeps.

It takes a part of the time that a translation takes, and a program that is wrong here is wrong in ONNX.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.results.report import Checked
from onnxpatch.verification.comparison import compare_all
from onnxpatch.verification.eager import flatten_output
from onnxpatch.verification.probe import Probe

_ASSERTING = ("_assert", "sym_constrain_range", "_guards_fn")


def check_captured(program: Any, probes: Sequence[Probe], tolerance: float) -> list[Checked]:
    """Run an ExportedProgram of a module that takes tensors only at every probe; [] where it cannot be run at all."""
    try:
        run = _Unguarded(program.module())
    except Exception:  # some programs cannot be made a module again: the ONNX graph will tell
        return []
    return [_check(run, probe, tolerance) for probe in probes]


def _check(run: _Unguarded, probe: Probe, tolerance: float) -> Checked:
    head = Checked("torch.export", probe.label, probe.kind, probe.sizes)
    values = [v.clone() for v in probe.values if isinstance(v, torch.Tensor)]
    try:
        with torch.no_grad():
            found = flatten_output(run.run(*values))
    except Exception as error:
        return replace(head, error=" ".join(str(error).split())[:500], status="refused")
    outputs = tuple(compare_all([str(i) for i in range(len(found))], probe.expected, found, tolerance))
    return replace(head, outputs=outputs, status="right" if all(one.ok for one in outputs) else "wrong")


class _Unguarded(torch.fx.Interpreter):
    """Runs a program past its asserts."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op in ("call_function", "call_module") and any(part in str(n.target) for part in _ASSERTING):
            return None
        return super().run_node(n)
