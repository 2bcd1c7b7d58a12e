"""Writes through views under torch.jit.trace: each becomes a new tensor in the traced graph.

    y.t()[0] = 7          the graph has   v = aten::t(y); s = aten::select(v, 0, 0); aten::fill_(s, 7)

torch.jit runs that graph right, since its views share memory. ONNX has no memory to share, and the TorchScript exporter
follows a write only through slices and selected rows, straight from the tensor that owns the memory, all in one line of
source: `v = y[:, 1:3]` and `v += 1` in the next line are lost. So every other one is written out at the end of the
forward: what is written to, then each view between, then the owner, as new values; and whoever reads one of them later
reads the new value.

- `torch._C._get_tracing_state().graph()`, its nodes and values (`createClone`, `insertBefore`, `replaceInput`).
- `torch._C._get_value_trace`, `torch._C._set_value_trace`: the value that a tensor of the model's output is.

If they move, such writes are lost under trace as they are in torch's own export, and `export` refuses the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch

from onnxpatch._torch.function_modes import running_trace, tracing_paused
from onnxpatch._torch.symbolic_sizes import traced_value
from onnxpatch._torch.traced_nodes import (
    NodeEmitter,
    View,
    can_write,
    is_in_place,
    is_view,
    turned_alone,
    views_made,
    written_by,
)

if TYPE_CHECKING:
    from torch import Block, Graph, Node, Value

# The exporter follows writes through these itself.
_FOLLOWED = ("aten::slice", "aten::select")
# What depends on the sizes alone, which no write changes.
_OF_SIZES = ("aten::size", "aten::dim", "aten::numel", "aten::len", "aten::is_floating_point")


def write_out(outputs: list[torch.Tensor], every: bool = False) -> None:
    """Rewrite the graph of the running trace. outputs: the tensors that the model returns.

    every: also those that the exporter follows. It loses some where a graph has several paths through one forward.
    """
    state = running_trace()
    if state is None or not (hasattr(torch._C, "_set_value_trace") and can_write()):
        return
    graph = state.graph()  # type: ignore[attr-defined]
    nodes = list(_in_order(graph))
    if not any(is_in_place(node.kind()) for node in nodes):
        return
    values = [traced_value(tensor) for tensor in outputs]
    with tracing_paused():  # examples of new values are made
        found = _rewritten(graph, nodes, values, every)
    for tensor, value, new in zip(outputs, values, found, strict=True):
        if new is not value:
            torch._C._set_value_trace(tensor, new)


def _rewritten(graph: Graph, nodes: list[Node], values: list[Value | None], every: bool) -> list[Value | None]:
    """The values that hold what `values` have at the end of the forward."""
    memory = _Memory(nodes)
    lost = memory.written() if every else memory.lost(values)
    if not lost:
        return values
    now = _Rewritten(graph, memory, lost)
    for node in nodes:
        now.follow(node)
    return [None if value is None else now.read(value, graph.return_node()) for value in values]


def _in_order(block: Graph | Block) -> Iterator[Node]:
    """Nodes as they run. While the trace goes on, those of a module stand in a block of their own."""
    for node in block.nodes():
        if node.kind() == "prim::TracedModuleForward":
            for inner in node.blocks():
                yield from _in_order(inner)
        else:
            yield node


class _Memory:
    """Which values of a graph share memory. `owner`: by value; `views`: those that are seen through another."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.owner: dict[int, Value] = {}  # by the number that torch gives a value (`unique`)
        self.views: dict[int, View] = {}
        self.same: dict[int, Value] = {}  # what a write returns is the value written to
        for node in nodes:
            kind = node.kind()
            if kind.startswith("aten::"):
                self._add(node, kind)

    def _add(self, node: Node, kind: str) -> None:
        if (target := written_by(node, kind)) is not None:
            self.same[node.output().unique()] = self.itself(target)
        elif is_view(node):
            parent = self.itself(node.inputsAt(0))
            for place, (nodes, value) in enumerate(views_made(node)):
                self.views[value.unique()] = View(parent, nodes, place)
                self.owner[value.unique()] = self.owner.get(parent.unique(), parent)

    def itself(self, value: Value) -> Value:
        return self.same.get(value.unique(), value)

    def owner_of(self, value: Value) -> Value:
        """The value that owns the memory of `value`."""
        value = self.itself(value)
        return self.owner.get(value.unique(), value)

    def chain(self, value: Value) -> list[View]:
        """The views from `value` up to its owner."""
        found = []
        while (view := self.views.get(value.unique())) is not None:
            found.append(view)
            value = view.parent
        return found

    def written(self) -> set[int]:
        """The owners of all memory that is written to."""
        targets = (written_by(node, node.kind()) for node in self.nodes if node.kind().startswith("aten::"))
        return {self.owner_of(target).unique() for target in targets if target is not None}

    def lost(self, outputs: list[Value | None]) -> set[int]:
        """The owners of memory that is written to in a way that the exporter does not follow.

        outputs: values that are read at the end; None for what the graph does not have.
        """
        found: set[int] = set()
        made: dict[int, int] = {}  # by view: the writes to its memory before it
        count: dict[int, int] = {}

        def read(values: Iterable[Value]) -> None:
            for value in values:
                owner, one = self.owner_of(value).unique(), self.itself(value).unique()
                # A view from before a write, read after it.
                if one in self.views and made.get(one, 0) != count.get(owner, 0):
                    found.add(owner)

        for node in self.nodes:
            kind = node.kind()
            read(_tensors_read(node))
            for value in node.outputs():
                if value.unique() in self.views:
                    made[value.unique()] = count.get(self.owner_of(value).unique(), 0)
            if value_written := written_by(node, kind):
                target = self.itself(value_written)
                owner = self.owner_of(target).unique()
                count[owner] = count.get(owner, 0) + 1
                made[target.unique()] = count[owner]
                steps = self.chain(target)
                # It has a copy into a part of a tensor, and none into all of it.
                if not (steps or kind != "aten::copy_") or not all(_followed(step.nodes[0], node) for step in steps):
                    found.add(owner)
        read(filter(None, outputs))
        return found


class _Rewritten:
    """The graph while its nodes are gone through in order. Writes to the memory of `lost` become new values."""

    def __init__(self, graph: Graph, memory: _Memory, lost: set[int]) -> None:
        self._write = NodeEmitter(graph)
        self._memory = memory
        self._lost = lost
        self._latest: dict[int, tuple[int, Value]] = {}  # by value: (writes so far, what holds its elements)
        self._count: dict[int, int] = dict.fromkeys(lost, 0)

    def follow(self, node: Node) -> None:
        """Give a node what it reads as it is by now, and write out its own write."""
        kind = node.kind()
        written = written_by(node, kind)
        target = None if written is None else self._memory.itself(written)
        if target is not None and self._memory.owner_of(target).unique() not in self._lost:
            target = None
        before = None if target is None else self.read(target, node)
        if kind not in _OF_SIZES:
            self._refresh(node, past=0 if target is None else 1)
        for value in node.outputs():
            if value.unique() in self._memory.views and (owner := self._memory.owner_of(value).unique()) in self._lost:
                self._latest[value.unique()] = self._count[owner], value
        if target is not None and before is not None:
            self._store(target, self._write.written(node, before), node)

    def _refresh(self, node: Node, past: int = 0) -> None:
        for index, value in enumerate(node.inputs()):
            if index >= past and (new := self.read(value, node)) is not value:
                node.replaceInput(index, new)
        for block in node.blocks():
            for inner in block.nodes():
                for index, value in enumerate(inner.inputs()):
                    if (new := self.read(value, node)) is not value:
                        inner.replaceInput(index, new)

    def read(self, value: Value, place: Node) -> Value:
        """What holds the elements of `value` by now; nodes for it are written before the node `place`."""
        owner = self._memory.owner_of(value).unique()
        if owner not in self._lost:
            return value  # and not what it is the same as: by it the exporter follows a write
        value = self._memory.itself(value)
        count, latest = self._latest.get(value.unique(), (0, value))
        view = self._memory.views.get(value.unique())
        if view is None or count == self._count[owner]:
            return latest
        new = self._write.seen(view, self.read(view.parent, place), place)
        self._latest[value.unique()] = self._count[owner], new
        return new

    def _store(self, target: Value, new: Value, node: Node) -> None:
        """`new` are the elements of `target` after `node`; put them into every tensor that it is a view of."""
        steps = self._memory.chain(target)
        # Up to the last view of a part they are put back at once; what lies between is seen anew where it is read.
        parts = [number for number, step in enumerate(steps, 1) if not turned_alone(step)][-1:]
        groups = [steps[: parts[0]]] if parts else []
        groups += [[step] for step in steps[sum(parts) :]]
        # Their elements before the write, read while these are what the owner has.
        before = [self.read(group[-1].parent, node) for group in groups]
        owner = self._memory.owner_of(target).unique()
        count = self._count[owner] = self._count[owner] + 1
        self._latest[target.unique()] = count, new
        place = self._write.after(node)
        for group, old in zip(groups, before, strict=True):
            new = self._write.put_back(group, old, new, place)
            self._latest[group[-1].parent.unique()] = count, new


def _followed(view: Node, write: Node) -> bool:
    """Whether the exporter finds the view when it meets the write: it looks for those of the same line of source."""
    return view.kind() in _FOLLOWED and view.sourceRange() == write.sourceRange()


def _tensors_read(node: Node) -> list[Value]:
    kind = node.kind()
    if kind in _OF_SIZES:
        return []
    return [value for value in node.inputs() if value.type().kind() == "TensorType"]
