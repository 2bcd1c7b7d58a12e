"""Placing the nodes of a small acyclic graph in layers: longest path first, then fewer crossings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

Node = Hashable
Edge = tuple[Node, Node]
_SWEEPS = 6


def layered(nodes: Sequence[Node], edges: Iterable[Edge]) -> list[list[Node]]:
    """Layers from top to bottom; every edge goes down. `nodes` in an order in which producers come first."""
    above: dict[Node, list[Node]] = {node: [] for node in nodes}
    below: dict[Node, list[Node]] = {node: [] for node in nodes}
    for start, end in edges:
        above[end].append(start)
        below[start].append(end)
    depth: dict[Node, int] = {}
    for node in nodes:
        depth[node] = max((depth[one] + 1 for one in above[node] if one in depth), default=0)
    for node in reversed(nodes):  # a source stands just above its first reader
        if not above[node] and below[node]:
            depth[node] = min(depth[one] for one in below[node]) - 1
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers[1:] if down else reversed(layers[:-1]):
            _order(layer, above if down else below, layers)
    return layers


def _order(layer: list[Node], neighbours: Mapping[Node, list[Node]], layers: list[list[Node]]) -> None:
    """Each node at the mean of its neighbours' places, as shares of their layers' widths."""
    place = {node: (i + 0.5) / len(one) for one in layers for i, node in enumerate(one)}
    centre = {
        node: sum(place[one] for one in neighbours[node]) / len(neighbours[node]) if neighbours[node] else place[node]
        for node in layer
    }
    layer.sort(key=lambda node: centre[node])


def placed(layers: list[list[Node]], width: Mapping[Node, float], gap: float) -> dict[Node, float]:
    """The left edge of every node: layers centred over the widest."""
    total = {i: sum(width[n] for n in layer) + gap * (len(layer) - 1) for i, layer in enumerate(layers)}
    widest = max(total.values(), default=0.0)
    left: dict[Node, float] = {}
    for i, layer in enumerate(layers):
        x = (widest - total[i]) / 2
        for node in layer:
            left[node] = x
            x += width[node] + gap
    return left
