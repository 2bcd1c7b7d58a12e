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
from onnxpatch._torch.function_modes import unseen
from onnxpatch.control_flow.loops import graph_loops
from onnxpatch.control_flow.optional_outputs import Refusals
from onnxpatch.control_flow.pytrees import JOINS, Leaf, StackedRounds, map_leaves, names_in, tensors
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.tape import Composite, Rebinding, TorchCall, pruned
from onnxpatch.decisions.ask import Site, here
from onnxpatch.errors import BranchError

Place = tuple[int, int]
"""Where a round made a tensor: (number of the torch call in the round, number of the tensor in its result)."""

ROW: Place = (-1, 0)
"""The place of a round's own row, which no call made."""

InnerPlace = tuple[int, Place]
"""Where every round of a loop inside a round made a tensor: (number of that loop in the round, place in its rounds)."""

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
        self.inner: list[list[RecordedLoop]] = []  # by round, the loops inside it
        # By id of a tensor that their rounds made: what stands for it, None for nothing.
        self._inside: dict[int, torch.Tensor | None] = {}
        self._written: dict[tuple[Place | InnerPlace | None, int | None], list[torch.Tensor]] = {}
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

    def hold_inner(self, loop: RecordedLoop) -> dict[int, torch.Tensor]:
        """Another loop has ended in the round that runs. Returns its final state, by id of what its last round made."""
        carried, last = list(loop.carried), len(loop.rounds) - 1
        # Written now: what the next round makes of it belongs to the next round.
        final = loop._write(None) if carried else []
        at = {name: place for name, (number, place) in loop.places.items() if number == last and place in loop.carried}
        states = {name: final[carried.index(place)] for name, place in at.items()}
        self.inner[-1].append(loop)
        self._inside |= {**dict.fromkeys(loop.places), **states}
        return states

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
        if number != len(self.rounds) - 1 or self._inside.get(id(leaf), leaf) is None:
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
        first, end = inside[0], inside[-1] + 1
        # What is not a tensor here is torch's own error, and stays in.
        before, after = (cast("list[torch.Tensor]", list(side)) for side in (parts[:first], parts[end:]))
        inner = self._of_inner_loops(parts[first:end])
        if inner is not None:
            return StackedRounds(before, self._flat(inner), after)
        whole = self._of_every_round(parts[first:end]) if end - first == len(self.rounds) else None
        if whole is None:
            return [self.final(part) for part in parts]
        place, turned = whole
        if dim is not None and place != ROW and not turned:
            return [*before, self._write(place, dim)[-1], *after]
        stacked = self._stacked(place)
        return StackedRounds(before, self.capture.execute(torch.flip, (stacked, (0,))) if turned else stacked, after)

    def _of_every_round(self, parts: Sequence[object]) -> tuple[Place, bool] | None:
        """(where, whether from the last to the first) of one tensor of every round; None for other parts."""
        found = [self.places.get(id(part)) for part in parts]
        order, places = [one[0] for one in found if one], {one[1] for one in found if one}
        rounds = list(range(len(self.rounds)))
        single = any(self._inside.get(id(part), part) is None for part in parts)
        if single or None in found or len(places) != 1 or order not in (rounds, rounds[::-1]) or self.rows is None:
            return None
        return places.pop(), order != rounds

    def _of_inner_loops(self, parts: Sequence[object]) -> InnerPlace | None:
        """Where the loops inside every round made these parts, one a round of theirs; None for other parts."""
        found, at = set(), 0
        for loops in self.inner:
            number = next((n for n, loop in enumerate(loops) if at < len(parts) and id(parts[at]) in loop.places), None)
            if number is None:
                return None
            rounds = len(loops[number].rounds)
            whole = loops[number]._of_every_round(parts[at : at + rounds])
            found.add(None if whole is None or whole[1] else (number, whole[0]))
            at += rounds
        return found.pop() if at == len(parts) and len(found) == 1 else None

    def _flat(self, place: InnerPlace) -> torch.Tensor:
        """[rounds of this loop * rounds of the inner one, ...]: what every round of a loop inside this one made."""
        if exporting() == "trace":
            # Joined by the loop itself, so that the inner one may be of another length in each round.
            return self._write(place, 0)[-1]
        return self.capture.execute(torch.flatten, (self._write(place)[-1], 0, 1))

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

    def _write(self, place: Place | InnerPlace | None, dim: int | None = None) -> list[torch.Tensor]:
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

    def write(self, place: Place | InnerPlace | None, outer: Rebinding, dim: int | None = None) -> list[torch.Tensor]:
        """Write the loop. Returns the final state and, for a place, the stack of what every round made there, or its
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
        self,
        carry: list[torch.Tensor],
        row: torch.Tensor | None,
        outer: Rebinding,
        place: Place | InnerPlace | None = None,
    ) -> list[torch.Tensor]:
        """Repeat the second round on other tensors. Returns the new state, then what the round made at a place."""
        # The first round reads what was there before the loop; the second is the first that shows what is carried.
        binding = outer.child()
        binding.bind([self.result_at(0, carried) for carried in self.carried], carry)
        if row is not None:
            binding.bind(self.rows_taken[1], row)
        state = [self.result_at(1, carried) for carried in self.carried]
        # The condition of a `while` is asked before every round: number 2 is the one after the second round.
        asked, out = self.predicates[2:3], self._out(place)
        with unseen():  # sizes are read, which who records this round would take for a part of it
            # Without the rounds of a loop inside this one, which are in its own call.
            needed = names_in((asked, state, out.outer if isinstance(out, _LoopCall) else out))
            calls = pruned(self.rounds[1], needed)
        binding.run(calls)
        if self.rows is None:
            return [*map(binding, asked), *map(binding, state)]
        made = out(*[binding(each) for each in out.outer])[-1] if isinstance(out, _LoopCall) else binding(out)
        return [*map(binding, state), made]

    def _out(self, place: Place | InnerPlace | None) -> torch.Tensor | _LoopCall:
        """What the second round gives out as its row."""
        if place is None:  # a Scan's step gives one out in every round, also where nobody asked for one
            return torch.zeros(())
        number, inner = place
        return self.result_at(1, (number, inner)) if isinstance(inner, int) else _LoopCall(self.inner[1][number], inner)


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

    def __init__(self, loop: RecordedLoop, place: Place | InnerPlace | None, dim: int | None = None) -> None:
        self._loop, self._place, self._dim = loop, place, dim
        self.outer = list(loop.outer())

    def __eq__(self, other: object) -> bool:
        """Whether two rounds of a loop around this one make the same of it. Its own calls are compared as theirs."""
        return isinstance(other, _LoopCall) and self._asked() == other._asked()

    def __hash__(self) -> int:
        return hash((self._place, self._dim))

    def _asked(self) -> tuple[object, ...]:
        return self._loop.site, self._place, self._dim, list(self._loop.carried), len(self.outer)

    def __call__(self, *operands: Leaf) -> list[torch.Tensor]:
        binding = Rebinding()
        for old, new in zip(self.outer, operands, strict=True):
            # While the path runs, the operands are these very tensors; in a branch that repeats the loop they are
            # others.
            if old is not new:
                binding.bind(old, new)
        with self._loop.capture.pause():
            return [tensor.clone() for tensor in self._loop.write(self._place, binding, self._dim)]
