"""What is recorded of a plain loop while its first rounds run, and what it leaves behind in the graph.

for row in x:                  rows_taken: 3 rows
    total = total * 0.5 + row  rounds: [[mul, add], [mul, add], [mul, add]]; `total` is made at (1, 0) of each

Python holds tensors of single rounds after the loop; in the graph there is one Scan. So wherever such a tensor is used
afterwards, it is replaced by the loop's final state, or from the stack of what every round made:

    total = total * 0.5 + row      `total` after the loop      the last state that the Scan returns
    outs.append(total.tanh())      torch.stack(outs)           the Scan's stacked output [rounds, ...]
    y = row * 2                    `y` after the loop          the last row of the stack of every y

A tensor of any but the last round has no counterpart in the graph: using it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar, cast

import torch

from onnxpatch._torch import exporting
from onnxpatch.control_flow.loops import graph_loops
from onnxpatch.control_flow.optional_outputs import Refusals
from onnxpatch.control_flow.pytrees import JOINS, Leaf, StackedRounds, map_leaves, tensors
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.tape import Composite, Rebinding, TorchCall
from onnxpatch.decisions.ask import Site, here
from onnxpatch.errors import BranchError

Place = tuple[int, int]
"""Where a round made a tensor: (number of the torch call in the round, number of the tensor in its result)."""

ROW: Place = (-1, 0)
"""The place of a round's own row, which no call made."""

ValueT = TypeVar("ValueT")
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")


class RecordedLoop:
    """One loop in the user's code.

    rows: the tensor whose rows it runs over, one a round; None for a `while`. predicates: of a `while`, the condition
    before each round and after the last. rounds: the torch calls of each. places: by id of a tensor, the round that
    made it, and where in it. carried: for each result that the next round uses, the tensor that was there before the
    loop.
    """

    def __init__(self, capture: Recording, rows: torch.Tensor | None) -> None:
        self.capture, self.rows, self.site = capture, rows, here()
        self.rows_taken: list[torch.Tensor] = []
        self.rounds: list[list[TorchCall]] = []
        self.predicates: list[torch.Tensor] = []
        self.places: dict[int, tuple[int, Place]] = {}
        self.carried: dict[Place, torch.Tensor] = {}
        self.done = False
        self._written: dict[tuple[Place | None, int | None], list[torch.Tensor]] = {}
        self._last_rows: dict[Place, torch.Tensor] = {}
        self._rows_of: dict[tuple[int, ...], torch.Tensor | None] = {}  # by the ids of a list's entries

    def rounds_in(self, values: object) -> int:
        """From how many rounds a container has tensors."""
        return len({self.places[id(tensor)][0] for tensor in tensors(values) if id(tensor) in self.places})

    def result_at(self, number: int, place: Place) -> torch.Tensor:
        """The tensor that round `number` made at a place, or its row."""
        if place == ROW:
            return self.rows_taken[number]
        return tensors(self.rounds[number][place[0]].result)[place[1]]

    def refusal(self, found: str) -> BranchError:
        """The error for this loop."""
        return loop_refusal(self.capture, self.site, found)

    # ---- after it: its results in place of the tensors of its rounds

    def in_call(self, function: object, args: ArgsT, kwargs: KwargsT) -> tuple[ArgsT, KwargsT]:
        """The arguments of a call after the loop, with its results in place of the rounds' tensors."""
        if not any(id(tensor) in self.places for tensor in tensors((args, kwargs))):
            return args, kwargs
        if function in JOINS and isinstance(args, tuple) and isinstance(args[0], list | tuple):
            dim = kwargs.get("dim", args[1] if len(args) > 1 else 0) if isinstance(kwargs, dict) else 0
            within = dim if function is not torch.stack and exporting() == "trace" else None
            return cast(ArgsT, (self._joined(args[0], within), *args[1:])), kwargs
        return map_leaves(args, self.final), map_leaves(kwargs, self.final)

    def final(self, leaf: ValueT) -> ValueT:
        """What replaces a value after the loop; the value itself where it is no tensor of a round."""
        found = self.places.get(id(leaf)) if isinstance(leaf, torch.Tensor) else None
        if found is None:
            return leaf
        number, place = found
        if number != len(self.rounds) - 1:
            raise self.refusal("a result of a single round is used after it")
        if place in self.carried:
            return cast(ValueT, self._write(None)[list(self.carried).index(place)])
        if self.rows is None:
            raise self.refusal("a result of its last round is used after it, and has no value from before the loop")
        return cast(ValueT, self._last_row(place))

    def _last_row(self, place: Place) -> torch.Tensor:
        """What the last round made at a place: the last row of the stack."""
        if place not in self._last_rows:
            self._last_rows[place] = self.capture.execute(torch.select, (self._stacked(place), 0, -1))
        return self._last_rows[place]

    def _joined(self, parts: Sequence[object], dim: int | None) -> list[object]:
        """The argument of a `stack` or `cat`; one tensor of every round, first to last or last to first, is replaced by
        their stack.

        dim: of a `cat` that the loop can do itself, so that the last round's may be shorter: they are one tensor.
        """
        inside = [index for index, part in enumerate(parts) if id(part) in self.places]
        first, rounds = inside[0], len(self.rounds)
        whole = self._of_every_round(parts[first : first + rounds]) if len(inside) == rounds else None
        if whole is None:
            return [self.final(part) for part in parts]
        place, turned = whole
        # What is not a tensor here is torch's own error, and stays in.
        before, after = (cast("list[torch.Tensor]", list(side)) for side in (parts[:first], parts[first + rounds :]))
        if dim is not None and place != ROW and not turned:
            return [*before, self._write(place, dim)[-1], *after]
        stacked = self._stacked(place)
        return StackedRounds(before, self.capture.execute(torch.flip, (stacked, (0,))) if turned else stacked, after)

    def _of_every_round(self, parts: Sequence[object]) -> tuple[Place, bool] | None:
        """(where, whether from the last to the first) of one tensor of every round; None for other parts."""
        found = [self.places.get(id(part)) for part in parts]
        order, places = [one[0] for one in found if one], {one[1] for one in found if one}
        rounds = list(range(len(self.rounds)))
        if None in found or len(places) != 1 or order not in (rounds, rounds[::-1]) or self.rows is None:
            return None
        return places.pop(), order != rounds

    def rows_of(self, parts: Sequence[object]) -> torch.Tensor | None:
        """[n, ...]: the tensor whose rows a list has that this loop has filled; None for another list."""
        if not self.done or self.rounds_in(parts) < 2 or not all(isinstance(part, torch.Tensor) for part in parts):
            return None
        key = tuple(map(id, parts))
        if key not in self._rows_of:
            joined = self._joined(parts, None)
            whole = isinstance(joined, StackedRounds)
            self._rows_of[key] = self.capture.execute(torch.stack, (joined,)) if whole else None
        return self._rows_of[key]

    def _stacked(self, place: Place) -> torch.Tensor:
        """[rounds, ...]: what every round made at a place."""
        if place == ROW:
            assert self.rows is not None
            return self.rows
        return self._write(place)[-1]

    def _write(self, place: Place | None, dim: int | None = None) -> list[torch.Tensor]:
        """The results of the loop in the graph, written on first use."""
        # A loop that is in the graph cannot get another output: each place that is asked for writes one of its own.
        if (place, dim) not in self._written:
            call = _LoopCall(self, place, dim)
            self._written[place, dim] = self.capture.execute(call, tuple(call.outer))
        return self._written[place, dim]

    def outer(self) -> Iterator[Leaf]:
        """The tensors from outside that the loop uses; they become its inputs."""
        found: dict[int, Leaf] = {id(t): t for call in self.rounds[1] for t in tensors((call.args, call.kwargs))}
        found.update((id(t), t) for t in (*self.carried.values(), *self.predicates[:1]))
        if self.rows is not None:
            found[id(self.rows)] = self.rows
        yield from (tensor for name, tensor in found.items() if name not in self.places)

    # ---- the loop of the graph

    def write(self, place: Place | None, outer: Rebinding, dim: int | None = None) -> list[torch.Tensor]:
        """Write the self. Returns the final state and, for a place, the stack of what every round made there, or its
        concatenation along `dim`."""
        carry = [outer(initial).clone() for initial in self.carried.values()]
        if self.rows is None:
            state = [outer(self.predicates[0]).clone(), *carry]
            final = graph_loops.write_while(
                lambda *now: [now[0]], lambda *now: self._round(list(now[1:]), None, outer), state
            )
            return list(final)[1:]
        # A Scan needs a state, even where the rounds do not depend on each other.
        dummy = [] if carry else [torch.zeros(1)]

        def step(*operands: torch.Tensor) -> list[torch.Tensor]:
            results = self._round(list(operands[:-1]) if carry else [], operands[-1], outer, place)
            return [*(operands[0].clone() for _ in dummy), *results]

        final = list(graph_loops.scan_loop(step, [*carry, *dummy], [outer(self.rows)], dim, place is not None))
        return final[len(dummy) :] if dummy else final

    def _round(
        self, carry: list[torch.Tensor], row: torch.Tensor | None, outer: Rebinding, place: Place | None = None
    ) -> list[torch.Tensor]:
        """Repeat the second round on other tensors. Returns the new state, then what the round made at a place."""
        # The first round reads what was there before the loop; the second is the first that shows what is carried.
        binding = outer.child()
        binding.bind([self.result_at(0, carried) for carried in self.carried], carry)
        if row is not None:
            binding.bind(self.rows_taken[1], row)
        binding.run(self.rounds[1])
        state = [binding(self.result_at(1, carried)) for carried in self.carried]
        if self.rows is None:
            # The condition is asked before every round: number 2 is the one after the second round.
            return [binding(self.predicates[2]), *state]
        # A Scan's step gives out a row in every round, also where nobody asked for one.
        return [*state, torch.zeros(()) if place is None else binding(self.result_at(1, place))]


def loop_refusal(refusals: Refusals, site: Site, found: str) -> BranchError:
    """The error for a loop whose first rounds do not show what the others do."""
    return refusals.refusal(
        site,
        f"a loop whose number of rounds depends on the input: {found}",
        remedy="put its body into a function marked @onnxpatch.scan (a round uses the one before), "
        "@onnxpatch.each (a round uses no other) or @onnxpatch.while_loop, or write it for the whole tensor",
    )


class _LoopCall(Composite):
    """A loop as one call that can be recorded and repeated: takes the tensors from outside, returns the results."""

    __name__ = "Loop"

    def __init__(self, loop: RecordedLoop, place: Place | None, dim: int | None) -> None:
        self._loop, self._place, self._dim = loop, place, dim
        self.outer = list(loop.outer())

    def __call__(self, *operands: torch.Tensor) -> list[torch.Tensor]:
        binding = Rebinding()
        for old, new in zip(self.outer, operands, strict=True):
            # While the path runs, the operands are these very tensors; in a branch that repeats the loop they are
            # others.
            if old is not new:
                binding.bind(old, new)
        with self._loop.capture.pause():
            return [tensor.clone() for tensor in self._loop.write(self._place, binding, self._dim)]
