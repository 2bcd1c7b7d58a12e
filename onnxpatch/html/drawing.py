"""A module's part of an ONNX graph, and its direct neighbours, drawn as inline SVG."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from html import escape
from typing import Any

from onnxpatch.html.layers import layered, placed
from onnxpatch.onnxfile.graph import by_module, shapes

_MOST = 80
_HEIGHT, _DOWN, _GAP, _MARGIN = 34, 30, 16, 8
_MOVES = {
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather", "Expand", "Split", "Flatten", "Pad",
    "Identity", "DepthToSpace", "SpaceToDepth", "Tile", "GatherND", "GatherElements",
}  # fmt: skip
_SIZES = {"Shape", "Size", "Range", "Cast", "CastLike", "Constant", "ConstantOfShape", "Floor", "Mod", "Where", "Equal"}


@dataclass
class Box:
    """One node of the drawing; `inside`: it belongs to the module."""

    key: str
    label: str
    shape: str
    tip: str
    inside: bool
    kind: str

    @property
    def width(self) -> float:
        return max(56.0, 7.2 * max(len(self.label), len(self.shape) * 0.82) + 16)


def drawing(proto: Any, paths: Collection[str]) -> str:
    """SVG of the nodes that came from the modules at `paths`, with what feeds and reads them; "" if there are none."""
    mine = [node for path, nodes in by_module(proto).items() if path in paths for node in nodes]
    if not mine:
        return ""
    boxes, edges = _neighbourhood(proto, mine[:_MOST])
    svg = _svg(boxes, edges)
    more = len(mine) - _MOST
    return svg + (f'<p class="quiet">{more} more nodes are not drawn</p>' if more > 0 else "")


def _neighbourhood(proto: Any, mine: list[Any]) -> tuple[dict[str, Box], list[tuple[str, str]]]:
    graph, known = proto.graph, shapes(proto)
    inside = {id(node) for node in mine}
    constant = {i.name for i in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    maker = {name: node for node in graph.node for name in node.output if name not in constant}
    given = {value.name: value for value in graph.input if value.name not in constant}
    boxes: dict[str, Box] = {}
    edges: list[tuple[str, str]] = []
    for node in mine:
        for name in node.input:
            if name in maker and id(maker[name]) not in inside:
                boxes.setdefault(_key(maker[name]), _box(maker[name], known, False))
            elif name in given:
                boxes.setdefault(name, Box(name, name, known.get(name, ""), "graph input", False, "input"))
    boxes |= {_key(node): _box(node, known, True) for node in mine}
    readers = [n for n in graph.node if id(n) not in inside and any(id(maker.get(i)) in inside for i in n.input)]
    boxes |= {_key(node): _box(node, known, False) for node in readers if _key(node) not in boxes}
    ends = [output for output in graph.output if id(maker.get(output.name)) in inside]
    for output in ends:
        key = f"output {output.name}"
        boxes[key] = Box(key, output.name, known.get(output.name, ""), "graph output", False, "input")
        edges.append((_key(maker[output.name]), key))
    for node in (*mine, *readers):
        for name in dict.fromkeys(node.input):
            start = name if name in given else _key(maker[name]) if name in maker else ""
            touches = id(node) in inside or (name in maker and id(maker[name]) in inside)
            if start in boxes and touches and start != _key(node):
                edges.append((start, _key(node)))
    return _sorted(boxes, graph), list(dict.fromkeys(edges))


def _sorted(boxes: dict[str, Box], graph: Any) -> dict[str, Box]:
    """Producers first: graph inputs, then nodes as the file orders them, then outputs."""
    order = {_key(node): i for i, node in enumerate(graph.node)}
    last = len(order)
    where = {key: order.get(key, last if key.startswith("output ") else -1) for key in boxes}
    return dict(sorted(boxes.items(), key=lambda item: where[item[0]]))


def _key(node: Any) -> str:
    return f"node {node.output[0] if node.output else id(node)}"


def _box(node: Any, known: dict[str, str], inside: bool) -> Box:
    kind = "moves" if node.op_type in _MOVES else "sizes" if node.op_type in _SIZES else "computes"
    outputs = ", ".join(f"{name} {known.get(name, '')}".strip() for name in node.output)
    tip = f"{node.op_type} {node.name}\n{', '.join(node.input)}\n→ {outputs}"
    return Box(_key(node), node.op_type, known.get(node.output[0] if node.output else "", ""), tip, inside, kind)


def _svg(boxes: dict[str, Box], edges: list[tuple[str, str]]) -> str:
    layers = layered(list(boxes), edges)
    left = placed(layers, {key: box.width for key, box in boxes.items()}, _GAP)
    top = {key: i * (_HEIGHT + _DOWN) for i, layer in enumerate(layers) for key in layer}
    width = max(left[key] + boxes[key].width for key in boxes) + 2 * _MARGIN
    height = len(layers) * (_HEIGHT + _DOWN) - _DOWN + 2 * _MARGIN
    parts = [_edge(boxes[a], left[a], top[a], boxes[b], left[b], top[b]) for a, b in edges]
    parts += [_rect(boxes[key], left[key], top[key]) for key in boxes]
    view = f'viewBox="-{_MARGIN} -{_MARGIN} {width:.0f} {height}"'
    return f'<svg class="graph" width="{width:.0f}" height="{height}" {view}>{"".join(parts)}</svg>'


def _edge(start: Box, x0: float, y0: float, end: Box, x1: float, y1: float) -> str:
    a, b = x0 + start.width / 2, y0 + _HEIGHT
    c, d = x1 + end.width / 2, float(y1)
    bend = min(24.0, (d - b) / 2)
    return f'<path class="edge" d="M{a:.1f},{b:.1f} C{a:.1f},{b + bend:.1f} {c:.1f},{d - bend:.1f} {c:.1f},{d:.1f}"/>'


def _rect(box: Box, x: float, y: float) -> str:
    middle = x + box.width / 2
    state = "" if box.inside else " outside"
    name_at = y + (15 if box.shape else 21)
    shape = f'<text class="shape" x="{middle:.1f}" y="{y + 28:.1f}">{escape(box.shape)}</text>' if box.shape else ""
    return (
        f'<g class="{box.kind}{state}"><title>{escape(box.tip)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{_HEIGHT}" rx="5"/>'
        f'<text x="{middle:.1f}" y="{name_at:.1f}">{escape(box.label)}</text>{shape}</g>'
    )
