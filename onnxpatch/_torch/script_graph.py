"""Private torch APIs for nodes that a symbolic function cannot write under the TorchScript exporter.

`torch._C.OptionalType.ofTensor` gives a `prim::Constant` the type "no tensor", which the exporter writes as an omitted
input. If it moves, patches that omit an input in the middle (Resize without regions, Clip without a bound) fail with
AttributeError under the trace exporter; nothing else uses it.

The graph that a symbolic function gets is a `GraphContext`: a dataclass with the `block` into which `op` writes, and a
block is a side of an `If`. If they move, Fourier transforms of a dynamic length fail under the trace exporter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch


def absent_input(graph: Any) -> object:
    """A value of the graph for an optional input that is omitted.

    graph: the first argument of a symbolic function; its `op` adds a node.
    """
    none = graph.op("prim::Constant")
    none.setType(torch._C.OptionalType.ofTensor())
    return none


def if_node(graph: Any, condition: Any, sides: Sequence[Callable[[Any], Any]]) -> Any:
    """An If with one output. sides: called with the graph whose `op` writes into that side; each returns its value."""
    made = graph.op("If", condition)
    for side in sides:
        block = made.node().addBlock()
        block.registerOutput(side(dataclasses.replace(graph, block=block)))
    return made
