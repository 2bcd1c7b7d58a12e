"""The first operator whose ONNX translation computes something else than torch does, found value by value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxpatch.diagnosis.attempt import Trial
from onnxpatch.diagnosis.places import Place, is_tool
from onnxpatch.onnxfile.arrays import as_array
from onnxpatch.onnxfile.runtime import Graph
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
    found = values_inside(trial.graph, trial.feed.of(probe.values))
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


def values_inside(graph: Graph, feed: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Every value of the main graph on one input, by name; {} where the graph cannot be run that way."""
    import onnx

    proto = onnx.load(str(graph.path))
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        run = _runner(graph.runtime, proto)
        return dict(zip(names, run(names, {name: as_array(value) for name, value in feed.items()}), strict=True))
    except Exception:  # only a hint is lost
        return {}


def _runner(runtime: str, proto: Any) -> Callable[..., Sequence[Any]]:
    if runtime == "reference":
        from onnx.reference import ReferenceEvaluator

        evaluate: Any = ReferenceEvaluator(proto)
        return lambda names, feed: list(evaluate.run(names, feed))
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    run: Callable[..., Sequence[Any]] = session.run
    return run


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
    users = [place for place in frames if not is_tool(place.file)]
    return list(reversed(users or frames))
