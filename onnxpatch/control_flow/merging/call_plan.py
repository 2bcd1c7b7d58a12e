"""Finds the torch calls that each part of a tree of paths needs, so that an `If` can repeat just these in its branches.

The tree is walked from the ends backwards. At an end, the returned values are needed; each call before it is kept if
something needed depends on it, and what the call reads is needed in turn. What no kept call provides is free: it must
come in from outside.

    if p:                kept below True:  [mul]     free: {x, w}     the If takes x and w as operands,
        y = x * w        kept below False: [neg]     free: {x}        and repeats mul or neg inside
    else:
        y = -x
"""

from __future__ import annotations

import torch

from onnxpatch._torch.cond import free_symbols
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.output_template import ABSENT, Slot
from onnxpatch.control_flow.path_tree import FinishedPath, PathNode
from onnxpatch.control_flow.pytrees import Name, names_in, tensors
from onnxpatch.control_flow.tape import TorchCall, names_made, pruned


class CallPlan:
    """For each node of a tree, by its id: `kept`, the calls between its decision and the one before; `free`, what they
    and the nodes below take from outside. known: every tensor of the tree by its id.

    reuse: whether paths share the calls before their common decisions.
    """

    def __init__(self, capture: Capture, root: PathNode, slots: list[Slot], reuse: bool) -> None:
        self._capture, self._root, self._slots, self._reuse = capture, root, slots, reuse
        self.position = {id(path): number for number, path in enumerate(root.finished())}
        self.kept: dict[int, list[TorchCall]] = {}
        self.free: dict[int, set[Name]] = {}
        self.known = self._all_tensors()

    def _all_tensors(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for path in self._root.finished():
            for call in path.calls:
                found.update((id(t), t) for t in tensors((call.args, call.kwargs, call.result)))
        found.update((id(t), t) for slot in self._slots for t in tensors(slot.present))
        predicates = (node.predicate for node in self._root.nodes())
        found.update((id(predicate), predicate) for predicate in predicates if predicate is not None)
        return found

    def fill(self) -> None:
        """Plan the whole tree."""
        self._plan(self._root, 0, 0)

    def _plan(self, node: PathNode, start: int, depth: int) -> set[Name]:
        """Plan a node, whose calls begin at `start` of its paths; returns what it takes from outside."""
        path = node.first()
        if node.end is not None:
            stop = len(path.calls)
            needed = self._needed_at_end(path)
        else:
            stop = path.decided_at[depth]
            # A decision with one side left is not written, and nobody needs its predicate.
            needed = names_in([node.predicate] if has_two_sides(node) else [])
            for child in node.children.values():
                needed |= self._plan(child, stop if self._reuse else 0, depth + 1)
        # Without shared calls each path ran in full on tensors of its own: all its calls belong to its end.
        calls = path.calls[start:stop] if self._reuse or node.end is not None else []
        self.kept[id(node)] = pruned(calls, needed)
        self.free[id(node)] = needed - names_made(self.kept[id(node)])
        return set(self.free[id(node)])

    def _needed_at_end(self, path: FinishedPath) -> set[Name]:
        number = self.position.get(id(path))
        if number is None:  # the path raised
            return set()
        return names_in([slot.values[number] for slot in self._slots]) | self._sentinel_names(number)

    def _sentinel_names(self, number: int) -> set[Name]:
        """What the sentinels of a path's absent values need: sizes, or while tracing the value itself."""
        absent = [slot for slot in self._slots if slot.values[number] is ABSENT]
        shapes = [self._capture.outputs.sentinel(slot.present)[0] for slot in absent]
        needed = names_in(shapes)
        if self._capture.exporter == "trace":
            for slot, like in zip(absent, shapes, strict=True):
                if like is None:
                    calls, names = self.making(slot)
                    needed |= names - names_made(calls)
            return needed
        likes = [value for slot in absent for value in slot.present[:1] if isinstance(value, torch.Tensor)]
        sizes = [size for like in likes for size in like.shape if isinstance(size, torch.SymInt)]
        return needed | {symbol for size in sizes for symbol in free_symbols(size) if has_hint(size)}

    def making(self, slot: Slot) -> tuple[list[TorchCall], set[Name]]:
        """The calls that make a slot's value on the first path that has one, and what they need."""
        number, value = next((n, v) for n, v in enumerate(slot.values) if v is not ABSENT)
        path = next(path for path in self._root.finished() if self.position[id(path)] == number)
        needed = names_in([value])
        return pruned(path.calls, needed), needed


def has_two_sides(node: PathNode) -> bool:
    """Whether paths return on both sides of a decision; where one side only raises, there is nothing to choose."""
    return len(node.children) == 2 and all(child.returns for child in node.children.values())


def has_hint(size: int | torch.SymInt) -> bool:
    """Whether a size is known at the example; one that depends on data is not."""
    return not isinstance(size, torch.SymInt) or bool(size.node.has_hint())
