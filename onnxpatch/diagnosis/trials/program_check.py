"""Compares an ExportedProgram with eager at every probe, without its conditions on sizes, which no ONNX graph keeps.

A program that is wrong here is wrong in ONNX too, and this takes a fraction of the time of a translation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from onnxpatch.results.report import Checked
from onnxpatch.verification.eager import Eager, flatten_output
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.undetermined import judged

# The model, for a probe at which a difference that eager does not determine is no error; else None.
Excusing = Callable[[Probe], Eager | None]

# Parts of the names of nodes in which torch.export writes its conditions. Under other names they raise, and the check
# says "refused" in place of "wrong".
_ASSERTING = ("_assert", "sym_constrain_range", "_guards_fn")


def check_captured(
    program: torch.export.ExportedProgram, probes: Sequence[Probe], tolerance: float, excusing: Excusing
) -> list[Checked]:
    """Run a program at every probe; [] where it cannot be run at all. Its module takes tensors only.

    tolerance: relative, as in `onnxpatch.verify`. excusing: the model, for a probe at which a difference that eager
    does not determine is no error.
    """
    try:
        interpreter = _WithoutAsserts(program.module())
    except Exception:  # some programs cannot be made a module again; their ONNX graph is checked instead
        return []
    return [_check(interpreter, probe, tolerance, excusing(probe)) for probe in probes]


def _check(interpreter: _WithoutAsserts, probe: Probe, tolerance: float, eager: Eager | None) -> Checked:
    head = Checked("torch.export", probe.label, probe.kind, probe.sizes)
    # A program may write into its inputs.
    values = [v.clone() for v in probe.values if isinstance(v, torch.Tensor)]
    try:
        with torch.no_grad():
            results = flatten_output(interpreter.run(*values))
    except Exception as error:
        return replace(head, error=" ".join(str(error).split())[:500], status="refused")
    return judged(head, [str(i) for i in range(len(results))], results, probe, eager, tolerance)


class _WithoutAsserts(torch.fx.Interpreter):
    """Runs a program, and leaves out the nodes that check its sizes."""

    def run_node(self, n: torch.fx.Node) -> object:
        if n.op in ("call_function", "call_module") and any(part in str(n.target) for part in _ASSERTING):
            return None
        return super().run_node(n)
