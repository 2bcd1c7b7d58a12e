"""Draws a module's part of an ONNX graph, with the nodes that feed and read it, as inline SVG."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from onnxpatch.onnxfile.graph import by_module, shape_texts

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

Node = Hashable
Edge = tuple[Node, Node]
_SWEEPS = 6  # more change nothing in graphs of this size
_MOST_NODES = 80
_HEIGHT, _DOWN, _GAP, _MARGIN = 34, 30, 16, 8  # pixels: a box, the space below and beside it, around the drawing
# Operators that only move data, and those that compute with sizes: they have colours of their own, since a patch often
# removes them.
_MOVES = {
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather", "Expand", "Split", "Flatten", "Pad",
    "Identity", "DepthToSpace", "SpaceToDepth", "Tile", "GatherND", "GatherElements",
}  # fmt: skip
_SIZES = {"Shape", "Size", "Range", "Cast", "CastLike", "Constant", "ConstantOfShape", "Floor", "Mod", "Where", "Equal"}


@dataclass
class _Box:
    """One node of the drawing.

    key: unique in the drawing. label, shape: its two lines. tip: shown when the mouse is on it. inside: whether it
    belongs to the module. kind: the CSS class: computes, moves, sizes or input.
    """

    key: str
    label: str
    shape: str
    tip: str
    inside: bool
    kind: str

    @property
    def width(self) -> float:
        """Pixels, from the number of characters: nothing here can measure text."""
        return max(56.0, 7.2 * max(len(self.label), len(self.shape) * 0.82) + 16)


def drawing(proto: ModelProto, paths: Collection[str]) -> str:
    """SVG of the nodes that came from the modules at `paths` and their neighbours; "" if there are no such nodes."""
    nodes = [node for path, found in by_module(proto).items() if path in paths for node in found]
    if not nodes:
        return ""
    svg = _svg(*_Neighbourhood(proto, nodes[:_MOST_NODES]).collect())
    more = len(nodes) - _MOST_NODES
    return svg + (f'<p class="quiet">{more} more nodes are not drawn</p>' if more > 0 else "")


class _Neighbourhood:
    """The boxes and edges of a drawing: some nodes of a graph, and what feeds and reads them."""

    def __init__(self, proto: ModelProto, nodes: Sequence[NodeProto]) -> None:
        graph = proto.graph
        constants = {i.name for i in graph.initializer}
        constants |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
        self._graph = graph
        self._nodes = nodes
        self._shapes = shape_texts(proto)
        self._inside = {id(node) for node in nodes}
        # Without constants: weights would be most of the boxes.
        self._producer = {name: node for node in graph.node for name in node.output if name not in constants}
        self._inputs = {value.name for value in graph.input if value.name not in constants}
        self._boxes: dict[str, _Box] = {}
        self._edges: list[tuple[str, str]] = []

    def collect(self) -> tuple[dict[str, _Box], list[tuple[str, str]]]:
        """Boxes by key, producers first, and edges from key to key."""
        self._add_feeding()
        self._boxes |= {_key(node): self._box(node, True) for node in self._nodes}
        readers = [n for n in self._graph.node if id(n) not in self._inside and any(map(self._is_ours, n.input))]
        self._boxes |= {_key(node): self._box(node, False) for node in readers if _key(node) not in self._boxes}
        self._add_outputs()
        self._add_edges(readers)
        return _sorted(self._boxes, self._graph), list(dict.fromkeys(self._edges))

    def _is_ours(self, name: str) -> bool:
        """Whether one of the nodes inside computes this value."""
        return name in self._producer and id(self._producer[name]) in self._inside

    def _add_feeding(self) -> None:
        for name in (name for node in self._nodes for name in node.input):
            if name in self._inputs:
                shape = self._shapes.get(name, "")
                self._boxes.setdefault(name, _Box(name, name, shape, "graph input", False, "input"))
            elif name in self._producer and not self._is_ours(name):
                producer = self._producer[name]
                self._boxes.setdefault(_key(producer), self._box(producer, False))

    def _add_outputs(self) -> None:
        for output in self._graph.output:
            if self._is_ours(output.name):
                key = f"output {output.name}"
                shape = self._shapes.get(output.name, "")
                self._boxes[key] = _Box(key, output.name, shape, "graph output", False, "input")
                self._edges.append((_key(self._producer[output.name]), key))

    def _add_edges(self, readers: Sequence[NodeProto]) -> None:
        """Edges between boxes of which at least one is inside."""
        for node in (*self._nodes, *readers):
            for name in dict.fromkeys(node.input):
                start = self._start(name)
                if start in self._boxes and start != _key(node) and (id(node) in self._inside or self._is_ours(name)):
                    self._edges.append((start, _key(node)))

    def _start(self, name: str) -> str:
        if name in self._inputs:
            return name
        return _key(self._producer[name]) if name in self._producer else ""

    def _box(self, node: NodeProto, inside: bool) -> _Box:
        kind = "moves" if node.op_type in _MOVES else "sizes" if node.op_type in _SIZES else "computes"
        outputs = ", ".join(f"{name} {self._shapes.get(name, '')}".strip() for name in node.output)
        tip = f"{node.op_type} {node.name}\n{', '.join(node.input)}\n→ {outputs}"
        shape = self._shapes.get(node.output[0], "") if node.output else ""
        return _Box(_key(node), node.op_type, shape, tip, inside, kind)


def _sorted(boxes: dict[str, _Box], graph: GraphProto) -> dict[str, _Box]:
    """Producers first: graph inputs, then nodes as the file orders them, then outputs."""
    order = {_key(node): i for i, node in enumerate(graph.node)}
    last = len(order)
    where = {key: order.get(key, last if key.startswith("output ") else -1) for key in boxes}
    return dict(sorted(boxes.items(), key=lambda item: where[item[0]]))


def _key(node: NodeProto) -> str:
    # Names of nodes may be missing or repeated; a graph computes each value once.
    return f"node {node.output[0] if node.output else id(node)}"


def _svg(boxes: dict[str, _Box], edges: list[tuple[str, str]]) -> str:
    layers = layered(list(boxes), edges)
    left = placed(layers, {key: box.width for key, box in boxes.items()}, _GAP)
    top = {key: i * (_HEIGHT + _DOWN) for i, layer in enumerate(layers) for key in layer}
    width = max(left[key] + boxes[key].width for key in boxes) + 2 * _MARGIN
    height = len(layers) * (_HEIGHT + _DOWN) - _DOWN + 2 * _MARGIN
    parts = [_edge(boxes[a], left[a], top[a], boxes[b], left[b], top[b]) for a, b in edges]
    parts += [_rect(boxes[key], left[key], top[key]) for key in boxes]
    view = f'viewBox="-{_MARGIN} -{_MARGIN} {width:.0f} {height}"'
    return f'<svg class="graph" width="{width:.0f}" height="{height}" {view}>{"".join(parts)}</svg>'


def _edge(start: _Box, x0: float, y0: float, end: _Box, x1: float, y1: float) -> str:
    a, b = x0 + start.width / 2, y0 + _HEIGHT
    c, d = x1 + end.width / 2, float(y1)
    bend = min(24.0, (d - b) / 2)
    return f'<path class="edge" d="M{a:.1f},{b:.1f} C{a:.1f},{b + bend:.1f} {c:.1f},{d - bend:.1f} {c:.1f},{d:.1f}"/>'


def _rect(box: _Box, x: float, y: float) -> str:
    middle = x + box.width / 2
    state = "" if box.inside else " outside"
    name_at = y + (15 if box.shape else 21)
    shape = f'<text class="shape" x="{middle:.1f}" y="{y + 28:.1f}">{escape(box.shape)}</text>' if box.shape else ""
    return (
        f'<g class="{box.kind}{state}"><title>{escape(box.tip)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{_HEIGHT}" rx="5"/>'
        f'<text x="{middle:.1f}" y="{name_at:.1f}">{escape(box.label)}</text>{shape}</g>'
    )


def layered(nodes: Sequence[Node], edges: Iterable[Edge]) -> list[list[Node]]:
    """The nodes in layers from top to bottom; every edge goes down. `nodes` are sorted topologically, sources first."""
    above: dict[Node, list[Node]] = {node: [] for node in nodes}
    below: dict[Node, list[Node]] = {node: [] for node in nodes}
    for start, end in edges:
        above[end].append(start)
        below[start].append(end)
    depth = _depths(nodes, above, below)
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers[1:] if down else reversed(layers[:-1]):
            _order(layer, above if down else below, layers)
    return layers


def _depths(
    nodes: Sequence[Node], above: Mapping[Node, list[Node]], below: Mapping[Node, list[Node]]
) -> dict[Node, int]:
    depth: dict[Node, int] = {}
    for node in nodes:
        depth[node] = max((depth[one] + 1 for one in above[node] if one in depth), default=0)
    for node in reversed(nodes):  # an input moves down to just above its first reader, for shorter edges
        if not above[node] and below[node]:
            depth[node] = min(depth[one] for one in below[node]) - 1
    return depth


def _order(layer: list[Node], neighbours: Mapping[Node, list[Node]], layers: list[list[Node]]) -> None:
    """Sort one layer by the mean place of each node's neighbours. A place is a share of its layer's width."""
    place = {node: (i + 0.5) / len(one) for one in layers for i, node in enumerate(one)}
    centre = {
        node: sum(place[one] for one in neighbours[node]) / len(neighbours[node]) if neighbours[node] else place[node]
        for node in layer
    }
    layer.sort(key=lambda node: centre[node])


def placed(layers: list[list[Node]], width: Mapping[Node, float], gap: float) -> dict[Node, float]:
    """The x of every node's left edge, in pixels: each layer is centred on the widest. width, gap: in pixels."""
    total = {i: sum(width[n] for n in layer) + gap * (len(layer) - 1) for i, layer in enumerate(layers)}
    widest = max(total.values(), default=0.0)
    left: dict[Node, float] = {}
    for i, layer in enumerate(layers):
        x = (widest - total[i]) / 2
        for node in layer:
            left[node] = x
            x += width[node] + gap
    return left
