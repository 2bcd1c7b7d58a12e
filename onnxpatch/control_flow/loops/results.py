"""What a plain loop leaves, once its rounds were compared: its final state, and the stack of what every round made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.control_flow.loops import graph_loops
from onnxpatch.control_flow.tape import Rebinding, rebuilt, tensors

if TYPE_CHECKING:
    from onnxpatch.control_flow.loops.inference import Loop

Place = tuple[int, int]  # entry of a round, tensor of its result
ROW: Place = (-1, 0)
"""The place of a round's own row."""

_JOINS = (torch.stack, torch.cat, torch.concat, torch.concatenate)


class LoopResults:
    """What stands after a loop for the tensors of its rounds."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._known: dict[Any, list[torch.Tensor]] = {}

    def in_call(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a call after the loop, with its results in place of the rounds' tensors."""
        if not any(id(tensor) in self.loop.places for tensor in tensors((args, kwargs))):
            return args, kwargs
        if function in _JOINS and isinstance(args[0], list | tuple):
            return (self._joined(args[0]), *args[1:]), kwargs
        return rebuilt(args, self.final), rebuilt(kwargs, self.final)

    def final(self, leaf: Any) -> Any:
        """What stands for a tensor after the loop."""
        loop = self.loop
        place = loop.places.get(id(leaf)) if isinstance(leaf, torch.Tensor) else None
        if place is None:
            return leaf
        number, where = place
        if number != len(loop.rounds) - 1:
            raise loop.refusal("what a single round made is used after it")
        if where in loop.carried:
            return self._run(None)[list(loop.carried).index(where)]
        if loop.rows is None:
            raise loop.refusal("what its last round made is used after it, and nothing stood there before")
        return self._last(where)

    def _last(self, where: Place) -> torch.Tensor:
        """What the last round made: the last row of what all made."""
        key = "last", where
        if key not in self._known:
            self._known[key] = [self.loop.capture.execute(torch.select, (self._stacked(where), 0, -1), {})]
        return self._known[key][0]

    def _joined(self, parts: Any) -> Any:
        """A list that holds one tensor of every round, with their stack in the place of these."""
        places = [self.loop.places.get(id(part)) for part in parts]
        inside = [index for index, place in enumerate(places) if place is not None]
        first, count = inside[0], len(self.loop.rounds)
        wheres = {place[1] for place in places if place is not None}
        in_order = [place[0] for place in places if place is not None] == list(range(count))
        together = inside == list(range(first, first + count))
        if not in_order or not together or len(wheres) != 1 or self.loop.rows is None:
            return [self.final(part) for part in parts]
        return StackedRounds(parts[:first], self._stacked(wheres.pop()), parts[first + count :])

    def _stacked(self, where: Place) -> torch.Tensor:
        if where == ROW:
            assert self.loop.rows is not None
            return self.loop.rows
        return self._run(where)[-1]

    def _run(self, where: Place | None) -> list[torch.Tensor]:
        if where not in self._known:
            call = LoopCall(self, where)
            self._known[where] = self.loop.capture.execute(call, tuple(call.outer), {})
        return self._known[where]

    def outer(self) -> Iterator[Any]:
        """Everything from outside that the body uses: what the loop needs, for those who record it."""
        loop = self.loop
        found = {id(t): t for entry in loop.rounds[1] for t in tensors((entry.args, entry.kwargs))}
        found.update((id(t), t) for t in (*loop.carried.values(), *loop.answers[:1]))
        if loop.rows is not None:
            found[id(loop.rows)] = loop.rows
        yield from (tensor for name, tensor in found.items() if name not in loop.places)

    # ---- the loop of the graph

    def written(self, where: Place | None, outer: Rebinding) -> list[torch.Tensor]:
        """The loop itself: the final state, and for a place the stack of what every round made there."""
        loop = self.loop
        carry = [outer(init).clone() for init in loop.carried.values()]
        if loop.rows is None:
            state = [outer(loop.answers[0]).clone(), *carry]
            found = graph_loops.while_loop(
                lambda *now: [now[0]], lambda *now: self._round(list(now[1:]), None, outer), state
            )
            return list(found)[1:]
        dummy = [] if carry else [torch.zeros(1)]

        def step(*given: torch.Tensor) -> list[torch.Tensor]:
            made = self._round(list(given[:-1]) if carry else [], given[-1], outer, where)
            return [*(given[0].clone() for _ in dummy), *made]

        found = list(graph_loops.scan_loop(step, [*carry, *dummy], outer(loop.rows)))
        return found[len(dummy) :] if dummy else found

    def _round(
        self, carry: list[torch.Tensor], row: torch.Tensor | None, outer: Rebinding, where: Place | None = None
    ) -> list[torch.Tensor]:
        """The second round again, on other tensors. Returns the new state, then what it made at a place."""
        loop, binding = self.loop, outer.child()
        for place, now in zip(loop.carried, carry, strict=True):
            binding.bind(loop.made(0, place), now)
        if row is not None:
            binding.bind(loop.given[1], row)
        binding.run(loop.rounds[1])
        new = [binding(loop.made(1, place)) for place in loop.carried]
        if loop.rows is None:
            return [binding(loop.answers[2]), *new]
        return [*new, torch.zeros(()) if where is None else binding(loop.made(1, where))]


class LoopCall:
    """A loop as one call that can be noted and done again: (what it uses from outside) -> what it leaves."""

    __name__ = "Loop"

    def __init__(self, results: LoopResults, where: Place | None) -> None:
        self.results, self.where = results, where
        self.outer = list(results.outer())

    def __call__(self, *given: torch.Tensor) -> list[torch.Tensor]:
        binding = Rebinding()
        for old, new in zip(self.outer, given, strict=True):
            if old is not new:
                binding.bind(old, new)
        with self.results.loop.capture.pause():
            return [tensor.clone() for tensor in self.results.written(self.where, binding)]


class StackedRounds(list[Any]):
    """The parts of a list that is joined, those of the loop's rounds as one tensor [rounds, ...]."""

    def __init__(self, before: Any, outs: torch.Tensor, after: Any) -> None:
        super().__init__([*before, outs, *after])
        self.before, self.outs, self.after = list(before), outs, list(after)


def joined(function: Any, parts: StackedRounds, dim: int = 0) -> torch.Tensor:
    """`stack` or `cat` of such a list."""
    dims = parts.outs.dim() - 1
    if function is torch.stack:
        at = dim % (dims + 1)
        middle = parts.outs.movedim(0, at)
        sides = [[part.unsqueeze(at) for part in side] for side in (parts.before, parts.after)]
    else:
        at = dim % dims
        middle = parts.outs.movedim(0, at).flatten(at, at + 1)
        sides = [parts.before, parts.after]
    return torch.cat([*sides[0], middle, *sides[1]], at) if any(sides) else middle
