"""Merges the paths of one forward into one graph: `Where` for cheap branches, `If` for costly ones or other shapes.

All paths have run already, so that the results of both sides of a decision are in the graph:

    Where   takes the two results as they are. Both sides are computed for every input.
    If      repeats the calls of each side inside its branches, and what ran outside is left unused for the exporter to
            remove. One side is computed. Needed where the sides' shapes differ, and where sizes decide.

The tree of paths is merged from the root down; a decision inside a branch of an If is merged inside that branch. Which
calls each part of the tree needs is found before, from the ends backwards: at an end, the returned values are needed;
each call before it is kept if something needed depends on it, and what the call reads is needed in turn. What no kept
call provides is free: it must come in from outside.

    if p:                kept below True:  [mul]     free: {x, w}     the If takes x and w as operands,
        y = x * w        kept below False: [neg]     free: {x}        and repeats mul or neg inside
    else:
        y = -x
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import torch

from onnxpatch._torch.cond import free_symbols
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.flat_outputs import Merged, Operand, conditional, multiply_adds, select
from onnxpatch.control_flow.merging.output_template import Slot
from onnxpatch.control_flow.merging.shapes import has_hint, same_shape, varying_dims
from onnxpatch.control_flow.path_tree import Path, PathNode
from onnxpatch.control_flow.pytrees import Name, full_scalar, names_in, tensors
from onnxpatch.control_flow.tape import Composite, Rebinding, TorchCall, names_made, pruned

if TYPE_CHECKING:
    import sympy

# Multiply-adds, at the example's sizes, that a branch must save to be worth an If of its own.
_WORTH_AN_IF = 20_000


class _CallPlan:
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
            needed = names_in([node.predicate] if _has_two_sides(node) else [])
            for child in node.children.values():
                needed |= self._plan(child, stop if self._reuse else 0, depth + 1)
        # Without shared calls each path ran in full on tensors of its own: all its calls belong to its end.
        calls = path.calls[start:stop] if self._reuse or node.end is not None else []
        self.kept[id(node)] = pruned(calls, needed)
        self.free[id(node)] = needed - names_made(self.kept[id(node)])
        return set(self.free[id(node)])

    def _needed_at_end(self, path: Path) -> set[Name]:
        number = self.position.get(id(path))
        if number is None:  # the path raised
            return set()
        return names_in([slot.values[number] for slot in self._slots]) | self._sentinel_names(number)

    def _sentinel_names(self, number: int) -> set[Name]:
        """What the sentinels of a path's absent values need: sizes, or while tracing the value itself."""
        absent = [slot for slot in self._slots if slot.values[number] is None]
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
        number, value = next((n, v) for n, v in enumerate(slot.values) if v is not None)
        path = next(path for path in self._root.finished() if self.position[id(path)] == number)
        needed = names_in([value])
        return pruned(path.calls, needed), needed


def _has_two_sides(node: PathNode) -> bool:
    """Whether paths return on both sides of a decision; where one side only raises, there is nothing to choose."""
    return len(node.children) == 2 and all(child.returns for child in node.children.values())


class _BranchMerger:
    """Merges the outcomes of one module's paths; see `merged_slots`."""

    def __init__(self, capture: Capture, root: PathNode, slots: list[Slot], reuse: bool) -> None:
        self.capture, self._root, self._slots = capture, root, slots
        self._plan = _CallPlan(capture, root, slots, reuse)
        # Shapes are read below, which a running trace would record.
        with tracing_paused():
            self._plan.fill()
            self._varying = {id(slot): varying_dims(slot) for slot in slots}

    def run(self) -> list[Merged]:
        """One value for each slot, in the graph that is being captured."""
        return self._merge(self._root, Rebinding(), replaying=False)

    def _merge(self, node: PathNode, binding: Rebinding, replaying: bool) -> list[Merged]:
        """The slots at the end of `node`, whose own calls have run. replaying: inside a branch of an If."""
        if node.end is not None:
            return self._at_end(node.end, binding)
        if not _has_two_sides(node):
            child = next(child for child in node.children.values() if child.returns)
            if replaying:
                binding.run(self._plan.kept[id(child)])
            return self._merge(child, binding, replaying)
        if self._wants_if(node):
            return self._if(node, binding)
        sides = []
        for answer in (True, False):
            # Outside an If the calls of both sides have run, while the paths were explored.
            inner = binding.child() if replaying else binding
            if replaying:
                inner.run(self._plan.kept[id(node.children[answer])])
            sides.append(self._merge(node.children[answer], inner, replaying))
        assert node.predicate is not None
        predicate = binding(node.predicate)
        fills = [self.capture.outputs.sentinel(slot.present)[1] for slot in self._slots]
        return [select(predicate, a, b, slot, f) for a, b, slot, f in zip(*sides, self._slots, fills, strict=True)]

    def _at_end(self, path: Path, binding: Rebinding) -> list[Merged]:
        number = self._plan.position[id(path)]
        merged: list[Merged] = []
        for slot in self._slots:
            value = slot.values[number]
            if isinstance(value, torch.Tensor):
                value = binding(value)
                value = value if value.dtype == slot.dtype else value.to(slot.dtype)
            elif value is not None:
                value = full_scalar(binding(value), slot.dtype)
            merged.append((value, value is not None if slot.optional else None))
        return merged

    # ---- Where or If

    def _wants_if(self, node: PathNode) -> bool:
        if self.capture.form == "if":
            return True
        if node.on_sizes:  # at sizes of the one side, the other's calls may fail: `x + table`, `x.topk(4)`
            return True
        with tracing_paused():
            if not all(self._same_shape(slot) for slot in self._slots):
                return True
            if self.capture.form == "where" or self._needs_values():
                return False
            return sum(self._work(child) for child in node.children.values()) >= _WORTH_AN_IF

    def _same_shape(self, slot: Slot) -> bool:
        like = self.capture.outputs.sentinel(slot.present)[0] if slot.optional else None
        return same_shape(slot.present if like is None else [*slot.present, like], self._root)

    def _needs_values(self) -> bool:
        # While tracing, the shape of a value is known only by computing it: then an If saves nothing.
        optional = [slot for slot in self._slots if slot.optional]
        unknown = any(self.capture.outputs.sentinel(slot.present)[0] is None for slot in optional)
        return self.capture.exporter == "trace" and unknown

    def _work(self, node: PathNode) -> int:
        below = sum(self._work(child) for child in node.children.values())
        return multiply_adds(self._plan.kept.get(id(node), ())) + below

    # ---- If

    def _if(self, node: PathNode, binding: Rebinding) -> list[Merged]:
        operands = self._operands(node)
        call = _IfCall(self, node, operands)
        assert node.predicate is not None
        predicate, now = binding(node.predicate), [binding(operand) for operand in operands]
        # Inside the branch of another If the capture is paused: that If is what the tape has.
        outputs = call(predicate, now) if self.capture.paused else self.capture.execute(call, (predicate, now))
        self.capture.alive.append(call)
        found = iter(outputs)
        merged: list[Merged] = [
            (self._unpacked(slot, found, binding), next(found) if slot.optional else None) for slot in self._slots
        ]
        if self.capture.shadow is not None and not self.capture.paused:
            for (value, _), slot in zip(merged, self._slots, strict=True):
                self.capture.shadow.join(cast(torch.Tensor, value), slot.values)
        return merged

    def branch(self, node: PathNode, operands: list[Operand], inner: list[Operand]) -> list[torch.Tensor]:
        """Repeat the calls of one side inside an If, where `inner` are the operands.

        Returns the slots' values, each optional one followed by its flag.
        """
        binding = _bound(operands, inner)
        binding.run(self._plan.kept[id(node)])
        outputs: list[torch.Tensor] = []
        for slot, (value, flag) in zip(self._slots, self._merge(node, binding, replaying=True), strict=True):
            value = self._sentinel(slot, _bound(operands, inner)) if value is None else value
            outputs += self._packed(slot, value)
            if slot.optional:
                outputs.append(flag.clone() if isinstance(flag, torch.Tensor) else torch.full((), bool(flag)))
        return outputs

    def _sentinel(self, slot: Slot, binding: Rebinding) -> torch.Tensor:
        """The tensor for an absent value inside a branch: of the declared shape, else of its shape on another path."""
        declared, fill = self.capture.outputs.sentinel(slot.present)
        if declared is not None:
            return torch.full_like(binding(declared), fill, dtype=slot.dtype)
        like = next((value for value in slot.present if isinstance(value, torch.Tensor)), None)
        if like is None:
            return torch.zeros((), dtype=slot.dtype)
        if self.capture.exporter == "trace":
            binding.run(self._plan.making(slot)[0])
            return torch.full_like(binding(like), fill, dtype=slot.dtype)
        # A size that comes from data is not known on a path without the value: the sentinel has no elements along it.
        sizes = [binding(size) if has_hint(size) else 0 for size in like.shape]
        return torch.full(sizes, fill, dtype=slot.dtype, device=like.device)

    # torch.cond merges a size that differs between its branches, but computes strides from it only where it is first.
    # Where several differ, a branch returns the elements in one row, and a tensor for each of these sizes.

    def _packed(self, slot: Slot, value: torch.Tensor) -> list[torch.Tensor]:
        dims = self._varying[id(slot)]
        if len(dims) > 1:
            return [value.reshape(-1).clone(), *(value.new_zeros(value.shape[dim]) for dim in dims)]
        # Cloned, since a branch may not return one of its operands as it is; contiguous, for the same strides on both
        # sides.
        moved = value.movedim(dims[0], 0) if dims else value
        return [moved.clone(memory_format=torch.contiguous_format)]

    def _unpacked(self, slot: Slot, found: Iterator[torch.Tensor], binding: Rebinding) -> torch.Tensor:
        value, dims = next(found), self._varying[id(slot)]
        if len(dims) < 2:
            return value.movedim(0, dims[0]) if dims else value
        like = next(value for value in slot.present if isinstance(value, torch.Tensor))
        sizes = [next(found).shape[0] if dim in dims else binding(size) for dim, size in enumerate(like.shape)]
        torch._check(math.prod(sizes) == value.shape[0])
        return value.reshape(sizes)

    # ---- operands of an If

    def _operands(self, node: PathNode) -> list[Operand]:
        """The tensors from outside that the two sides use, and carriers of the sizes that they use as numbers."""
        needed = self._plan.free[id(node.children[True])] | self._plan.free[id(node.children[False])]
        found = [tensor for name, tensor in self._plan.known.items() if name in needed]
        operands = [*found, *self._size_carriers([name for name in needed if not isinstance(name, int)], found)]
        assert node.predicate is not None
        return operands or [node.predicate]

    def _size_carriers(self, symbols: list[sympy.Symbol], operands: list[torch.Tensor]) -> list[Operand]:
        """Tensors with the symbols as sizes, where no operand has them; else the numbers themselves."""
        carriers: list[Operand] = []
        for symbol in symbols:
            if any(_has_size(operand, symbol) for operand in [*operands, *carriers]):
                continue
            tensors = [*self.capture.inputs, *self._plan.known.values()]
            carrier = next((tensor for tensor in tensors if _has_size(tensor, symbol)), None)
            carriers.append(carrier if carrier is not None else self._number(symbol))
        return carriers

    def _number(self, symbol: sympy.Symbol) -> torch.SymInt:
        """The number from data, `t.item()`, that a symbol stands for."""
        for path in self._root.finished():
            for call in path.calls:
                if isinstance(call.result, torch.SymInt) and call.result.node.expr == symbol:
                    return call.result
        raise self.capture.refusal(
            self._root.site,
            f"a branch uses a number ({symbol}) that is the size of no tensor",
            remedy="compute it inside the branch, or from a tensor's size",
        )


def merged_slots(capture: Capture, root: PathNode, slots: list[Slot], reuse: bool) -> list[Merged]:
    """The outcomes of one module's paths, merged slot by slot of its output in the graph that is being captured.

    reuse: whether paths share the calls before their common decisions.
    """
    return _BranchMerger(capture, root, slots, reuse).run()


class _IfCall(Composite):
    """An If as one call that can be recorded and repeated: (predicate, operands) -> values and flags."""

    __name__ = "If"
    merges_paths = True

    def __init__(self, merger: _BranchMerger, node: PathNode, operands: list[Operand]) -> None:
        self._merger, self._node, self._operands = merger, node, operands

    def __call__(self, predicate: torch.Tensor, inner: list[Operand]) -> list[torch.Tensor]:
        capture = self._merger.capture
        with capture.pause():
            return conditional(predicate, self._side(True), self._side(False), inner, capture.report.compiled)

    def _side(self, answer: bool) -> Callable[..., tuple[torch.Tensor, ...]]:
        child = self._node.children[answer]
        return lambda *inner: tuple(self._merger.branch(child, self._operands, list(inner)))


def _bound(operands: list[Operand], inner: list[Operand]) -> Rebinding:
    binding = Rebinding()
    binding.bind(operands, inner)
    return binding


def _has_size(value: Operand, symbol: sympy.Symbol) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else ()
    return any(isinstance(size, torch.SymInt) and bool(size.node.expr == symbol) for size in sizes)
