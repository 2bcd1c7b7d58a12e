"""The mask of attention that a model writes out, as numbers that one node adds to its scores.

    scores.masked_fill(mask, -3.4e38)               Where(mask, lowest, scores)
    scores + where(mask, 0, -3.4e38)                Add(scores, Where(mask, 0, lowest))

A query that may see no key gets the mean of all values from both, as from a number that is added if that is large and
finite: onnxruntime's Attention counts the lowest float as no key at all, and gives zeros. So half of it is added. A
mask with -inf, which gives NaN there, and one of unknown numbers are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.use_def import Size, UseDef

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_LOWEST = -1.7e38  # half of the lowest float32
_OUTSHINES = -1e4  # a number from here on down leaves no weight, whatever the other scores are


@dataclass(frozen=True)
class Mask:
    """which: the bool value that chooses. hidden: whether it is True at keys that are not seen. added: there."""

    which: str
    hidden: bool
    added: float


def unmasked(graph: UseDef, name: str) -> tuple[str, str, Mask | None] | None:
    """(the scores before the mask, the operator that reads them, the mask) for what a softmax is taken of.

    The mask is None where there is none. None in place of all: a mask of another kind.
    """
    added, chosen = graph.maker(name, "Add"), graph.maker(name, "Where")
    if added is None and chosen is None:
        return name, "Softmax", None
    if graph.only_user(name, "Softmax") is None:
        return None
    if chosen is not None:
        return _filled(graph, chosen)
    return _added(graph, added) if added is not None else None


def _filled(graph: UseDef, chosen: NodeProto) -> tuple[str, str, Mask | None] | None:
    """Scores in whose place a low number is chosen."""
    for place in (1, 2):
        fill = graph.scalar(chosen.input[place])
        if fill is not None and -float("inf") < fill <= _OUTSHINES:
            return chosen.input[3 - place], "Where", Mask(chosen.input[0], place == 1, _LOWEST)
    return None


def _added(graph: UseDef, added: NodeProto) -> tuple[str, str, Mask | None] | None:
    """Scores to which 0 is added, or a low number."""
    for place in (0, 1):
        made = graph.maker(added.input[place], "Where")
        numbers = [graph.scalar(one) for one in made.input[1:]] if made is not None else []
        if made is not None and 0.0 in numbers and None not in numbers:
            low = min(number for number in numbers if number is not None)
            if -float("inf") < low < 0:
                # The first number of Where is the one for True.
                return added.input[1 - place], "Add", Mask(made.input[0], numbers[0] != 0, max(low, _LOWEST))
    return None


def fits(graph: UseDef, mask: Mask, scores: Sequence[Size]) -> bool:
    """Whether the mask is spread over scores of these sizes, and does not make them larger."""
    sizes = graph.shape(mask.which)
    if not 0 < len(sizes) <= len(scores):
        return False
    pairs = zip(reversed(sizes), reversed(scores), strict=False)
    return all(size == 1 or (size is not None and size == whole) for size, whole in pairs)


class Addends:
    """Writes what masks add, once for all attentions that share a mask."""

    def __init__(self, proto: ModelProto, graph: UseDef) -> None:
        self._proto, self._graph = proto, graph
        self._made: dict[tuple[object, ...], str] = {}

    def of(self, mask: Mask, query: str, key: str, before: NodeProto) -> str:
        """The name of (batch or 1, heads or 1, queries, keys) in float32, written before the node `before`.

        query, key: values of three dimensions, whose second are the lengths.
        """
        lengths = (self._graph.shape(query)[1], self._graph.shape(key)[1])
        named = (length or name for length, name in zip(lengths, (query, key), strict=True))
        known = (mask, *named)
        if known not in self._made:
            self._made[known] = self._write(mask, query, key, before, lengths)
        return self._made[known]

    def _write(self, mask: Mask, query: str, key: str, before: NodeProto, lengths: tuple[Size, Size]) -> str:
        import onnx

        stem = f"onnxpatch_mask_{len(self._made)}"
        zero, low = self._number(0.0), self._number(mask.added)
        chosen = (low, zero) if mask.hidden else (zero, low)
        nodes = [onnx.helper.make_node("Where", [mask.which, *chosen], [f"{stem}_added"], f"{stem}_added")]
        sizes = self._graph.shape(mask.which)
        # The operators spread a mask over batch and heads by themselves, but not over queries and keys.
        if len(sizes) != 4 or tuple(sizes[2:]) != lengths:
            ones = f"{stem}_ones"
            self._proto.graph.initializer.append(onnx.helper.make_tensor(ones, onnx.TensorProto.INT64, [2], [1, 1]))
            for part, name in (("queries", query), ("keys", key)):
                nodes.append(onnx.helper.make_node("Shape", [name], [f"{stem}_{part}"], start=1, end=2))
            parts = [ones, f"{stem}_queries", f"{stem}_keys"]
            nodes.append(onnx.helper.make_node("Concat", parts, [f"{stem}_sizes"], axis=0))
            nodes.append(onnx.helper.make_node("Expand", [f"{stem}_added", f"{stem}_sizes"], [f"{stem}_whole"]))
        # Nodes of a file are in an order in which every input is made before.
        place = next(i for i, node in enumerate(self._proto.graph.node) if node.output == before.output)
        # Each is put at the same place, so that the last one inserted comes first.
        for node in reversed(nodes):
            node.name = node.output[0]
            node.metadata_props.extend(before.metadata_props)
            self._proto.graph.node.insert(place, node)
        return nodes[-1].output[0]

    def _number(self, value: float) -> str:
        import onnx

        name = f"onnxpatch_number_{value}"
        if all(one.name != name for one in self._proto.graph.initializer):
            self._proto.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [value]))
        return name
