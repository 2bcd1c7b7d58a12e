"""The first operator whose ONNX translation computes something else than torch does, found value by value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxpatch.diagnosis.stack_lines import Place
from onnxpatch.diagnosis.trials.attempt import Trial
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.onnxfile.intermediate_values import intermediate_values
from onnxpatch.verification.comparison import compare
from onnxpatch.verification.probe import Probe

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Divergence:
    """operator: `aten::name.overload`; places: its user lines, innermost first."""

    operator: str
    places: tuple[Place, ...]


def first_divergence(trial: Trial, probe: Probe, tolerance: float = 1e-3) -> Divergence | None:
    """The first node of the exported program whose value the graph has, and has differently. None: no such node."""
    program = getattr(trial.program, "exported_program", None)
    if program is None or trial.graph is None:
        return None
    found = intermediate_values(trial.graph, trial.feed.of(probe.values))
    watch = _Values(program.module())
    try:
        with torch.no_grad():
            watch.run(*[v for v in probe.values if isinstance(v, torch.Tensor)])
    except Exception:  # an assert on sizes: the program itself does not serve this probe
        return None
    for node in watch.order:
        if _differs(watch.seen[node.name], found, node.name, tolerance):
            return Divergence(_name(node), tuple(_lines(node)))
    return None


class _Values(torch.fx.Interpreter):
    """Runs a program and keeps every tensor it makes."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.order: list[torch.fx.Node] = []
        self.seen: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, torch.Tensor) and n.name not in self.seen:
            self.order.append(n)
            self.seen[n.name] = value.detach().clone()
        return value


def _differs(value: torch.Tensor, found: Mapping[str, np.ndarray[Any, Any]], name: str, tolerance: float) -> bool:
    other = found.get(name)
    if other is None:
        return False
    return not compare(name, value, other, tolerance).ok


def _name(node: torch.fx.Node) -> str:
    name = getattr(node.target, "name", None)
    return str(name() if callable(name) else node.target)


def _lines(node: torch.fx.Node) -> list[Place]:
    frames = [Place(file, int(line)) for file, line in _LINE.findall(node.meta.get("stack_trace") or "")]
    users = [place for place in frames if is_user_file(place.file)]
    return list(reversed(users or frames))
