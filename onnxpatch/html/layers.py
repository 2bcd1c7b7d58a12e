"""Places the nodes of a small acyclic graph in layers, for the drawings of graphs.

Sugiyama's method, in short: a node's layer is the length of the longest path to it; then the nodes of each layer are
sorted by the mean place of their neighbours in turn from above and from below, which removes most crossings of edges.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

Node = Hashable
Edge = tuple[Node, Node]
_SWEEPS = 6  # more change nothing in graphs of this size


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
