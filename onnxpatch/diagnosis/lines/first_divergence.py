"""Finds the first operator whose ONNX translation computes something else than torch, value by value.

The exported program and the ONNX graph name their values alike. Both run on one probe, every value of the program is
kept, and the first one that the graph has differently names the operator and its line:

    program   %mul = aten.mul(%x, 2)     %round_1 = aten.round(%mul)
    graph     mul: equal                 round_1: differs by 1  -> aten::round, model.py:12
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from onnxpatch.decisions.place import Site
from onnxpatch.diagnosis.trials.trial import Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.onnxfile.intermediate_values import intermediate_values
from onnxpatch.verification.comparison import compare
from onnxpatch.verification.probe import Probe

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Divergence:
    """The operator that differs, as `aten::name.overload`, and the user's lines that call it, innermost first."""

    operator: str
    places: tuple[Site, ...]


def first_divergence(trial: Trial, probe: Probe, tolerance: float = 1e-3) -> Divergence | None:
    """The first node of the exported program whose value differs in the graph; None where none does.

    tolerance: relative, as in `onnxpatch.verify`.
    """
    program = getattr(trial.program, "exported_program", None)
    if program is None or trial.graph is None:
        return None
    found = intermediate_values(trial.graph, trial.feed.of(probe.values))
    kept = _KeepValues(program.module())
    try:
        with torch.no_grad():
            kept.run(*[v for v in probe.values if isinstance(v, torch.Tensor)])
    except Exception:  # an assert on sizes: the program was not exported for this probe
        return None
    for node in kept.order:
        # In the order of the program: what comes after a wrong value is wrong because of it.
        if _differs(kept.values[node.name], found, node.name, tolerance):
            return Divergence(_operator_name(node), tuple(_lines(node)))
    return None


class _KeepValues(torch.fx.Interpreter):
    """Runs a program and keeps every tensor that its nodes return."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.order: list[torch.fx.Node] = []
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> object:
        value: object = super().run_node(n)
        # Cloned: a later node may write into the same storage.
        if n.op == "call_function" and isinstance(value, torch.Tensor) and n.name not in self.values:
            self.order.append(n)
            self.values[n.name] = value.detach().clone()
        return value


def _differs(value: torch.Tensor, found: Mapping[str, np.ndarray], name: str, tolerance: float) -> bool:
    other = found.get(name)
    # The translation may have joined it with others, so that the graph has no value of that name.
    if other is None:
        return False
    return not compare(name, value, other, tolerance).ok


def _operator_name(node: torch.fx.Node) -> str:
    name = getattr(node.target, "name", None)
    return str(name() if callable(name) else node.target)


def _lines(node: torch.fx.Node) -> list[Site]:
    frames = [Site(file, int(line)) for file, line in _LINE.findall(node.meta.get("stack_trace") or "")]
    users = [place for place in frames if is_user_file(place.file)]
    return list(reversed(users or frames))
