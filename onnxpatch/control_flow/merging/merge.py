"""From a tree of paths to one graph: `Where` for cheap branches, `If` for those with real work or other shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch._torch.cond import free_symbols
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.if_node import conditional
from onnxpatch.control_flow.merging.output_template import ABSENT, Slot
from onnxpatch.control_flow.merging.same_shape import same_shape, varying_dim
from onnxpatch.control_flow.path_explorer import Leaf, Node
from onnxpatch.control_flow.tape import Entry, Rebinding, names_in, pruned, tensors, work

# Multiply-adds, at the example's sizes, that a branch must save to be worth an If of its own.
_WORTH_AN_IF = 20_000


@dataclass
class Item:
    """What a slot holds at some point of the tree: a value or ABSENT, and whether it is there (None: always)."""

    value: Any
    flag: torch.Tensor | bool | None


class BranchMerger:
    """Merges the outcomes of one module's paths, slot by slot.

    The paths have run already; `Where` takes their results as they are, `If` runs the calls after the decision once
    more, inside its branches.
    """

    def __init__(self, capture: Capture, root: Node, slots: list[Slot], reuse: bool) -> None:
        self.capture, self.root, self.slots, self.reuse = capture, root, slots, reuse
        self.position = {id(leaf): number for number, leaf in enumerate(root.leaves())}
        self.kept: dict[int, list[Entry]] = {}
        self.free: dict[int, set[Any]] = {}
        self.known = self._known()
        with tracing_paused():
            self._plan(root, 0, 0)
            self.moved = {id(slot): dim for slot in slots if (dim := varying_dim(slot)) is not None}

    def run(self) -> list[Item]:
        """One item for each slot, in the graph that is being captured."""
        return self._items(self.root, Rebinding(), replaying=False)

    # ---- planning: which calls each part of the tree needs, from the ends backwards

    def _known(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for leaf in self.root.leaves():
            for entry in leaf.tape:
                found.update((id(t), t) for t in tensors((entry.args, entry.kwargs, entry.result)))
        found.update((id(t), t) for slot in self.slots for t in tensors(slot.present))
        found.update((id(node.predicate), node.predicate) for node in nodes(self.root) if node.predicate is not None)
        return found

    def _plan(self, node: Node, start: int, depth: int) -> set[Any]:
        leaf = node.first()
        if node.leaf is not None:
            number = self.position.get(id(leaf))
            values = [] if number is None else [slot.values[number] for slot in self.slots]
            needed, stop = names_in(values), len(leaf.tape)
            if number is not None:
                needed |= self._sentinel_names(number)
        else:
            stop = leaf.cuts[depth]
            needed = names_in([node.predicate] if self._both(node) else [])
            for child in node.children.values():
                needed |= self._plan(child, stop if self.reuse else 0, depth + 1)
        entries = leaf.tape[start:stop] if self.reuse or node.leaf is not None else []
        self.kept[id(node)] = pruned(entries, needed)
        given = {name for entry in self.kept[id(node)] if not entry.constant for name in entry.gives()}
        self.free[id(node)] = needed - given
        return self.free[id(node)] | set()

    def _sentinel_names(self, number: int) -> set[Any]:
        """What making up the absent values of a path takes: sizes, or while tracing the value itself."""
        found: set[Any] = set()
        for slot in self.slots:
            if slot.values[number] is ABSENT:
                found |= names_in(self.capture.like_for(slot.present)[0])
        if self.capture.exporter == "trace":
            for slot in self.slots:
                if slot.values[number] is ABSENT and self.capture.like_for(slot.present)[0] is None:
                    entries, needed = self._making(slot)
                    found |= needed - {name for entry in entries if not entry.constant for name in entry.gives()}
            return found
        absent = [slot for slot in self.slots if slot.values[number] is ABSENT]
        sizes = [
            size
            for slot in absent
            for value in slot.present[:1]
            if isinstance(value, torch.Tensor)
            for size in value.shape
            if isinstance(size, torch.SymInt)
        ]
        return found | {s for size in sizes for s in free_symbols(size) if _backed(size)}

    def _making(self, slot: Slot) -> tuple[list[Entry], set[Any]]:
        """The calls that make the slot's value on a path that has one, and what they need."""
        number, value = next((n, v) for n, v in enumerate(slot.values) if v is not ABSENT)
        leaf = next(leaf for leaf in self.root.leaves() if self.position[id(leaf)] == number)
        needed = names_in([value])
        return pruned(leaf.tape, needed), needed

    # ---- merging

    def _both(self, node: Node) -> bool:
        return len(node.children) == 2 and all(child.alive for child in node.children.values())

    def _items(self, node: Node, binding: Rebinding, replaying: bool) -> list[Item]:
        """The slots at the end of `node`; its own calls have run."""
        if node.leaf is not None:
            return self._leaf_items(node.leaf, binding)
        if not self._both(node):
            child = next(child for child in node.children.values() if child.alive)
            if replaying:
                binding.run(self.kept[id(child)])
            return self._items(child, binding, replaying)
        if self._wants_if(node):
            return self._if(node, binding)
        sides = []
        for answer in (True, False):
            inner = binding.child() if replaying else binding
            if replaying:
                inner.run(self.kept[id(node.children[answer])])
            sides.append(self._items(node.children[answer], inner, replaying))
        assert node.predicate is not None
        predicate = binding(node.predicate)
        fills = [self.capture.like_for(slot.present)[1] for slot in self.slots]
        return [where(predicate, a, b, slot, f) for a, b, slot, f in zip(*sides, self.slots, fills, strict=True)]

    def _leaf_items(self, leaf: Leaf, binding: Rebinding) -> list[Item]:
        number = self.position[id(leaf)]
        items = []
        for slot in self.slots:
            value = slot.values[number]
            if isinstance(value, torch.Tensor):
                value = binding(value)
                value = value if value.dtype == slot.dtype else value.to(slot.dtype)
            elif value is not ABSENT:
                value = torch.full((), binding(value), dtype=slot.dtype)
            items.append(Item(value, value is not ABSENT if slot.optional else None))
        return items

    def _wants_if(self, node: Node) -> bool:
        if self.capture.form == "if":
            return True
        with tracing_paused():
            if any(node.pins.values()) or not all(self._same_shape(slot) for slot in self.slots):
                return True
            if self.capture.form == "where" or self._needs_value():
                return False
            return sum(self._work(child) for child in node.children.values()) >= _WORTH_AN_IF

    def _same_shape(self, slot: Slot) -> bool:
        like = self.capture.like_for(slot.present)[0] if slot.optional else None
        return same_shape(slot.present if like is None else [*slot.present, like], self.root)

    def _needs_value(self) -> bool:
        # While tracing, the shape of a value is known by computing it only: then nothing is saved by an If.
        unknown = [slot for slot in self.slots if slot.optional and self.capture.like_for(slot.present)[0] is None]
        return self.capture.exporter == "trace" and bool(unknown)

    def _work(self, node: Node) -> int:
        return work(self.kept.get(id(node), ())) + sum(self._work(child) for child in node.children.values())

    def _if(self, node: Node, binding: Rebinding) -> list[Item]:
        operands = self._operands(node)
        call = IfCall(self, node, operands)
        assert node.predicate is not None
        arguments = (binding(node.predicate), [binding(operand) for operand in operands])
        flat = self.capture.execute(call, arguments, {}) if not self.capture.paused else call(*arguments)
        self.capture.alive.append(call)
        found = iter(flat)
        return [Item(self._put_back(slot, next(found)), next(found) if slot.optional else None) for slot in self.slots]

    # torch.cond merges a size that differs between its branches, but computes strides from it only where it is first.

    def _brought_first(self, slot: Slot, value: torch.Tensor) -> torch.Tensor:
        dim = self.moved.get(id(slot))
        return (value if dim is None else value.movedim(dim, 0)).clone(memory_format=torch.contiguous_format)

    def _put_back(self, slot: Slot, value: torch.Tensor) -> torch.Tensor:
        dim = self.moved.get(id(slot))
        return value if dim is None else value.movedim(0, dim)

    def _operands(self, node: Node) -> list[Any]:
        needed = self.free[id(node.children[True])] | self.free[id(node.children[False])]
        found = [tensor for name, tensor in self.known.items() if name in needed]
        found += self._anchors([name for name in needed if not isinstance(name, int)], found)
        assert node.predicate is not None
        return found or [node.predicate]

    def _anchors(self, symbols: list[Any], operands: list[torch.Tensor]) -> list[Any]:
        """Tensors that carry sizes which the branches use as numbers."""
        anchors: list[Any] = []
        for symbol in symbols:
            if any(_carries(tensor, symbol) for tensor in operands + anchors if isinstance(tensor, torch.Tensor)):
                continue
            carrier = next((t for t in self.capture.inputs if _carries(t, symbol)), None)
            carrier = (
                carrier if carrier is not None else next((t for t in self.known.values() if _carries(t, symbol)), None)
            )
            anchors += [carrier] if carrier is not None else [self._number(symbol)]
        return anchors

    def _number(self, symbol: Any) -> Any:
        for leaf in self.root.leaves():
            for entry in leaf.tape:
                if isinstance(entry.result, torch.SymInt) and entry.result.node.expr == symbol:
                    return entry.result
        raise self.capture.refusal(
            self.root.site,
            f"a branch uses a number ({symbol}) that no tensor carries",
            remedy="compute it inside the branch, or from a tensor's size",
        )

    def branch(self, node: Node, operands: list[Any], given: list[Any]) -> list[torch.Tensor]:
        """The calls of one side again, on what the If hands in; flat results, flags behind optional values."""
        binding = Rebinding()
        for operand, inner in zip(operands, given, strict=True):
            binding.bind(operand, inner)
        binding.run(self.kept[id(node)])
        flat: list[torch.Tensor] = []
        for slot, item in zip(self.slots, self._items(node, binding, replaying=True), strict=True):
            value = self._sentinel(slot, operands, given) if item.value is ABSENT else item.value
            flat.append(self._brought_first(slot, value))
            if slot.optional:
                flag = item.flag
                flat.append(flag.clone() if isinstance(flag, torch.Tensor) else torch.full((), bool(flag)))
        return flat

    def _sentinel(self, slot: Slot, operands: list[Any], given: list[Any]) -> torch.Tensor:
        binding = Rebinding()
        for operand, inner in zip(operands, given, strict=True):
            binding.bind(operand, inner)
        declared, fill = self.capture.like_for(slot.present)
        if declared is not None:
            return torch.full_like(binding(declared), fill, dtype=slot.dtype)
        like = next((value for value in slot.present if isinstance(value, torch.Tensor)), None)
        if like is None:
            return torch.zeros((), dtype=slot.dtype)
        if self.capture.exporter == "trace":
            binding.run(self._making(slot)[0])
            return torch.full_like(binding(like), fill, dtype=slot.dtype)
        sizes = [binding(s) if _backed(s) else 0 for s in like.shape]
        return torch.full(sizes, fill, dtype=slot.dtype)


class IfCall:
    """One If as a call that can be noted and done again: (predicate, operands) -> flat results."""

    __name__ = "If"

    def __init__(self, merger: BranchMerger, node: Node, operands: list[Any]) -> None:
        self.merger, self.node, self.operands = merger, node, operands

    def __call__(self, predicate: torch.Tensor, given: list[Any]) -> list[torch.Tensor]:
        capture = self.merger.capture

        def side(answer: bool) -> Any:
            child = self.node.children[answer]
            return lambda *inner: tuple(self.merger.branch(child, self.operands, list(inner)))

        with capture.pause():
            return conditional(predicate, side(True), side(False), given, capture.report.compiled)


def where(predicate: torch.Tensor, a: Item, b: Item, slot: Slot, fill: float = 0) -> Item:
    """One slot, chosen at run time from two results that both exist; `fill` where neither does."""
    return Item(_choose(predicate, a.value, b.value, slot, fill), _choose_flag(predicate, a.flag, b.flag))


def _choose(predicate: torch.Tensor, a: Any, b: Any, slot: Slot, fill: float) -> Any:
    if a is b:
        return a
    if slot.dtype is torch.bool:
        # onnxruntime has no Where for bool.
        kept = [t & p for t, p in ((a, predicate), (b, ~predicate)) if t is not ABSENT]
        return kept[0] if len(kept) == 1 else kept[0] | kept[1]
    sentinel = torch.full((), fill, dtype=slot.dtype)
    return torch.where(predicate, sentinel if a is ABSENT else a, sentinel if b is ABSENT else b)


def _choose_flag(predicate: torch.Tensor, a: Any, b: Any) -> Any:
    if a is b:
        return a
    if isinstance(a, bool) and isinstance(b, bool):
        return predicate if a else ~predicate
    if isinstance(a, bool):
        return predicate | b if a else ~predicate & b
    if isinstance(b, bool):
        return ~predicate | a if b else predicate & a
    return (predicate & a) | (~predicate & b)


def nodes(node: Node) -> list[Node]:
    """Every node of a tree."""
    return [node, *(inner for child in node.children.values() for inner in nodes(child))]


def _carries(tensor: torch.Tensor, symbol: Any) -> bool:
    return any(isinstance(size, torch.SymInt) and size.node.expr == symbol for size in tensor.shape)


def _backed(size: Any) -> bool:
    return not isinstance(size, torch.SymInt) or size.node.has_hint()
