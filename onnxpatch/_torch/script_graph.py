"""Private torch APIs that write into a TorchScript graph under export: which, why, and what happens when they move.

`torch._C.OptionalType.ofTensor` gives a `prim::Constant` the type "no tensor", which the exporter writes as an omitted
input of an ONNX node. If it moves, patches that leave out an input in the middle (Resize without regions, Clip without
a bound) fail with AttributeError under the trace exporter; nothing else uses it.
"""

from __future__ import annotations

from typing import Any

import torch


def absent_input(graph: Any) -> Any:
    """A value of the graph that stands for an optional input which is left out.

    graph: what the exporter hands to a symbolic function (its `op` adds a node).
    """
    none = graph.op("prim::Constant")
    none.setType(torch._C.OptionalType.ofTensor())
    return none
