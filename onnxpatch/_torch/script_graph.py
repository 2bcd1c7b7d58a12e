"""A private torch API for optional inputs of ONNX nodes under the TorchScript exporter.

`torch._C.OptionalType.ofTensor` gives a `prim::Constant` the type "no tensor", which the exporter writes as an omitted
input. If it moves, patches that omit an input in the middle (Resize without regions, Clip without a bound) fail with
AttributeError under the trace exporter; nothing else uses it.
"""

from __future__ import annotations

from typing import Any

import torch


def absent_input(graph: Any) -> Any:
    """A value of the graph for an optional input that is omitted.

    graph: the first argument of a symbolic function; its `op` adds a node.
    """
    none = graph.op("prim::Constant")
    none.setType(torch._C.OptionalType.ofTensor())
    return none
