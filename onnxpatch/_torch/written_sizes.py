"""Sizes that can be read off the graph of a running trace: `reshape(batch, n, 3, heads, width)` has a 3 in it.

Running the graph on fake tensors tells every size (`traced_sizes.py`), and takes seconds for a deep model. Attention
needs the 3 of queries, keys and values in each layer, and the reshape before it has that number. This reads nodes,
their inputs and `toIValue`. If these move, nothing is read off, and the graph is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SHAPED = ("aten::reshape", "aten::view")
_KEEPING = ("aten::contiguous", "aten::detach", "aten::clone", "aten::dropout")


def written_size(node: Any, fixed: Callable[[Any, int], int | None]) -> int | None:
    """The result of an `aten::size` node with an axis, if it is the same for all inputs and stands in the graph.

    fixed: the size of an axis of one of the graph's own inputs, if that never changes.
    """
    operands = list(node.inputs())
    axis = _number(operands[1]) if len(operands) == 2 else None
    value = operands[0]
    while axis is not None:
        rank = value.type().dim()
        if rank is None:
            return None
        axis += rank if axis < 0 else 0
        maker = value.node()
        kind, given = maker.kind(), list(maker.inputs())
        if kind in _SHAPED:
            sizes = list(given[1].node().inputs()) if given[1].node().kind() == "prim::ListConstruct" else []
            size = _number(sizes[axis]) if axis < len(sizes) else None
            return size if size is not None and size >= 0 else None
        if kind == "aten::linear" and axis == rank - 1:
            return fixed(given[1], 0)
        if kind == "aten::permute":
            order = _numbers(given[1])
            axis = order[axis] if order is not None else None
        elif kind == "aten::transpose":
            axis = _exchanged(axis, rank, _number(given[1]), _number(given[2]))
        elif kind not in _KEEPING:
            return None
        value = given[0]
    return None


def _exchanged(axis: int, rank: int, first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return None
    first, second = first % rank, second % rank
    return {first: second, second: first}.get(axis, axis)


def _number(value: Any) -> int | None:
    """A constant whole number, else None."""
    found = value.toIValue() if value.node().kind() == "prim::Constant" else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _numbers(value: Any) -> list[int] | None:
    """A list of constant whole numbers, else None."""
    if value.node().kind() != "prim::ListConstruct":
        found = value.toIValue() if value.node().kind() == "prim::Constant" else None
        return found if isinstance(found, list) else None
    numbers = [_number(one) for one in value.node().inputs()]
    return [one for one in numbers if one is not None] if None not in numbers else None
