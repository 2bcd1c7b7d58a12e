"""Whose answer to a NaN a wrong one is: the file's, or a kernel's of onnxruntime that loses or spreads the NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

Feed = dict[str, Any]
# Known to lose a NaN; asked where onnx's evaluator has no form of a node in the file.
_KNOWN = ("GridSample", "RNN", "TopK")


def at_fault(file: Path, feed: Feed, right: Callable[[list[Any]], bool]) -> str:
    """The kernel whose result is not that of onnx's own evaluator, if the file is right there; else an empty text."""
    model = onnx.load(file)
    kinds = [node.op_type for node in model.graph.node]
    try:
        with np.errstate(all="ignore"):
            if not right(ReferenceEvaluator(model).run(None, feed)):
                return ""
            return _first_apart(model, feed)
    except Exception:  # whatever the evaluator lacks
        return next((kind for kind in kinds if kind in _KNOWN), "")


def _first_apart(model: onnx.ModelProto, feed: Feed) -> str:
    known = {output.name for output in model.graph.output}
    nodes = {name: node.op_type for node in model.graph.node for name in node.output if name}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in nodes if name not in known)
    names = [output.name for output in model.graph.output]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    runs = (dict(zip(names, one.run(names, feed), strict=True)) for one in (session, ReferenceEvaluator(model)))
    ours, theirs = runs
    apart = (name for name in nodes if not _same(ours[name], theirs[name]))
    return next((nodes[name] for name in apart), "")


def _same(one: Any, two: Any) -> bool:
    one, two = np.asarray(one), np.asarray(two)
    return one.shape == two.shape and bool(np.allclose(one, two, rtol=1e-3, atol=1e-5, equal_nan=one.dtype.kind == "f"))
