"""Plain loops that run as often as the data says: a few rounds are run, and what they have in common becomes one loop.

The body runs a handful of times on stand-ins. Where every round makes the same calls, on the same tensors, on its own
row and on what the round before left, that is a Scan or Loop; what does not fit is refused. After the loop the
tensors of the last round stand for the final state, and a list with one tensor of every round for their stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.control_flow import loops
from onnxpatch.control_flow.sites import Site, here
from onnxpatch.control_flow.tape import Entry, Rebinding, rebuilt, tensors
from onnxpatch.user_code import user_frame

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture

_JOINS = (torch.stack, torch.cat, torch.concat, torch.concatenate)
Place = tuple[int, int]  # entry of a round, tensor of its result


class Loop:
    """One loop of the user's, while it runs and after.

    rows: what it runs over, one a round; None for a `while`, whose `answers` are the predicates, one more than rounds.
    """

    def __init__(self, capture: Capture, rows: torch.Tensor | None) -> None:
        self.capture, self.rows, self.site = capture, rows, here()
        self.given: list[torch.Tensor] = []
        self.rounds: list[list[Entry]] = []
        self.answers: list[torch.Tensor] = []
        self.start: int | None = None
        self.done = False
        self._names: dict[str, Any] = {}
        self._made: dict[Any, list[torch.Tensor]] = {}

    # ---- while it runs

    def begin(self) -> None:
        """A round begins."""
        self.start = len(self.capture.frames[-1].tape)
        self._names = _numbers()

    def end(self) -> None:
        """A round is over."""
        if self.start is None:
            return
        tape = self.capture.frames[-1].tape
        self.rounds.append(tape[self.start :])
        self.start = None
        changed = [name for name, value in _numbers().items() if self._names.get(name, value) != value]
        if changed:
            raise self.refusal(f"the Python number {changed[0]} changes with every round")

    def finish(self) -> None:
        """The last round is over: what all rounds have in common."""
        self.done = True
        self.places = {
            id(tensor): (number, (at, which))
            for number, entries in enumerate(self.rounds)
            for at, entry in enumerate(entries)
            for which, tensor in enumerate(tensors(entry.result))
        }
        if len({len(entries) for entries in self.rounds}) > 1:
            raise self.refusal("its rounds differ")
        self.carried: dict[Place, torch.Tensor] = {}
        for at in range(len(self.rounds[0])):
            self._compare([entries[at] for entries in self.rounds])
        if self.answers:
            self._pair(list(self.answers[1:]), carry=False)

    def _compare(self, entries: list[Entry]) -> None:
        if any(entry.function != entries[0].function for entry in entries) or any(entry.mutates for entry in entries):
            raise self.refusal("its rounds differ, or update something in place")
        self._alike([(entry.args, entry.kwargs) for entry in entries])

    def _alike(self, values: list[Any]) -> None:
        first = values[0]
        if isinstance(first, int | float) and all(isinstance(value, torch.Tensor) for value in values[1:]):
            self._start_with(first, values[1:])
        elif isinstance(first, torch.Tensor):
            self._pair(values)
        elif isinstance(first, tuple | list) and all(type(v) is type(first) and len(v) == len(first) for v in values):
            for inner in zip(*values, strict=True):
                self._alike(list(inner))
        elif isinstance(first, dict) and all(type(v) is type(first) and v.keys() == first.keys() for v in values):
            for key in first:
                self._alike([value[key] for value in values])
        elif isinstance(first, slice):
            self._alike([(value.start, value.stop, value.step) for value in values])
        elif any(type(value) is not type(first) or not _equal(value, first) for value in values):
            raise self.refusal("a Python number differs between its rounds")

    def _pair(self, found: list[Any], carry: bool = True) -> None:
        """One tensor of every round: the same one, its own row, its own result, or the result of the round before."""
        if not all(isinstance(value, torch.Tensor) for value in found):
            raise self.refusal("its rounds differ")
        places = [self.places.get(id(tensor)) for tensor in found]
        if all(place is None for place in places):
            same, own = all(tensor is found[0] for tensor in found), [id(row) for row in self.given]
            if same or [id(tensor) for tensor in found] == own:
                return
        elif all(place is not None and place[0] == number for number, place in enumerate(places)):
            if len({place[1] for place in places if place is not None}) == 1:
                return
        elif carry and places[0] is None and self._from_before(found[0], places[1:]):
            return
        raise self.refusal("a round uses something other than its row and what the round before left")

    def _start_with(self, number: float, found: list[Any]) -> None:
        """`total = 0` before the loop: what the first round uses is a Python number, later ones a tensor."""
        place = self.places.get(id(found[0]))
        if place is None or self.rows is None:
            raise self.refusal("its rounds differ")
        before = self.carried.get(place[1])
        init = self.capture.execute(torch.full_like, (found[0], number), {}) if before is None else before
        if not self._from_before(init, [self.places.get(id(tensor)) for tensor in found]):
            raise self.refusal("a round uses something other than its row and what the round before left")

    def _from_before(self, init: torch.Tensor, places: list[Any]) -> bool:
        if any(place is None or place[0] != number for number, place in enumerate(places)):
            return False
        if len({place[1] for place in places}) != 1:
            return False
        return self.carried.setdefault(places[0][1], init) is init

    # ---- afterwards

    def settled(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a call after the loop, with its final state in place of the rounds' tensors."""
        if not any(id(tensor) in self.places for tensor in tensors((args, kwargs))):
            return args, kwargs
        if function in _JOINS and isinstance(args[0], list | tuple):
            return (self._joined(args[0]), *args[1:]), kwargs
        return rebuilt(args, self.final), rebuilt(kwargs, self.final)

    def final(self, leaf: Any) -> Any:
        """What stands for a tensor after the loop."""
        place = self.places.get(id(leaf)) if isinstance(leaf, torch.Tensor) else None
        if place is None:
            return leaf
        number, where = place
        if number != len(self.rounds) - 1:
            raise self.refusal("what a single round made is used after it")
        if where in self.carried:
            return self._run(None)[list(self.carried).index(where)]
        if self.rows is None:
            raise self.refusal("what its last round made is used after it, and nothing stood there before")
        with self.capture.pause():
            return self._run(where)[-1].select(0, -1)

    def _joined(self, parts: Any) -> Any:
        """A list that holds one tensor of every round, with their stack in the place of these."""
        places = [self.places.get(id(part)) for part in parts]
        inside = [index for index, place in enumerate(places) if place is not None]
        first, count = inside[0], len(self.rounds)
        wheres = {place[1] for place in places if place is not None}
        if len(inside) != count or inside != list(range(first, first + count)) or len(wheres) != 1 or self.rows is None:
            return [self.final(part) for part in parts]
        if [place[0] for place in places if place is not None] != list(range(count)):
            return [self.final(part) for part in parts]
        outs = self._run(wheres.pop())[-1]
        return _Stacked([*parts[:first]], outs, [*parts[first + count :]])

    def _run(self, where: Place | None) -> list[torch.Tensor]:
        if where not in self._made:
            self._made[where] = self.capture.execute(LoopCall(self, where), tuple(self._outer(where)), {})
        return self._made[where]

    def _outer(self, where: Place | None) -> Iterator[Any]:
        """Everything from outside that the body uses: what the loop needs, for those who record it."""
        mine = {id(row) for row in self.given} | self.places.keys()
        found = {id(t): t for entry in self.rounds[1] for t in tensors((entry.args, entry.kwargs))}
        found.update((id(t), t) for t in (*self.carried.values(), *self.answers[:1]))
        if self.rows is not None:
            found[id(self.rows)] = self.rows
        yield from (tensor for name, tensor in found.items() if name not in mine)

    def emitted(self, where: Place | None, outer: Rebinding) -> list[torch.Tensor]:
        """The loop itself: the final state, and for a place the stack of what every round made there."""
        carry = [outer(init).clone() for init in self.carried.values()]
        if self.rows is None:
            state = [outer(self.answers[0]).clone(), *carry]
            found = loops.while_loop(lambda *now: [now[0]], lambda *now: self._round(list(now[1:]), None, outer), state)
            return list(found)[1:]
        dummy = [] if carry else [torch.zeros(1)]

        def step(*given: torch.Tensor) -> list[torch.Tensor]:
            made = self._round(list(given[:-1]) if carry else [], given[-1], outer, where)
            return [*(given[0].clone() for _ in dummy), *made]

        found = list(loops.scan_loop(step, [*carry, *dummy], outer(self.rows)))
        return found[len(dummy) :] if dummy else found

    def _round(
        self, carry: list[torch.Tensor], row: torch.Tensor | None, outer: Rebinding, where: Place | None = None
    ) -> list[torch.Tensor]:
        """The second round again, on other tensors. Returns the new state, then what it made at a place."""
        binding = outer.child()
        for (at, which), now in zip(self.carried, carry, strict=True):
            binding.bind(tensors(self.rounds[0][at].result)[which], now)
        if row is not None:
            binding.bind(self.given[1], row)
        binding.run(self.rounds[1])
        new = [binding(tensors(self.rounds[1][at].result)[which]) for at, which in self.carried]
        if self.rows is None:
            return [binding(self.answers[2]), *new]
        if where is None:
            return [*new, torch.zeros(())]
        return [*new, binding(tensors(self.rounds[1][where[0]].result)[where[1]])]

    def refusal(self, found: str) -> Exception:
        return refused(self.capture, self.site, found)


class LoopCall:
    """A loop as one call that can be noted and done again: (what it uses from outside) -> what it leaves."""

    __name__ = "Loop"

    def __init__(self, loop: Loop, where: Place | None) -> None:
        self.loop, self.where = loop, where
        self.outer = list(loop._outer(where))

    def __call__(self, *given: torch.Tensor) -> list[torch.Tensor]:
        binding = Rebinding()
        for old, new in zip(self.outer, given, strict=True):
            if old is not new:
                binding.bind(old, new)
        with self.loop.capture.pause():
            return [tensor.clone() for tensor in self.loop.emitted(self.where, binding)]


class _Stacked(list[Any]):
    """The parts of a list that is joined, those of the loop's rounds as one tensor [rounds, ...]."""

    def __init__(self, before: list[Any], outs: torch.Tensor, after: list[Any]) -> None:
        super().__init__([*before, outs, *after])
        self.before, self.outs, self.after = before, outs, after


def joined(function: Any, parts: _Stacked, dim: int = 0) -> torch.Tensor:
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


def over_rows(capture: Capture, rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """Stand-ins for the rows of a tensor, as many as are needed to see what the loop does."""
    frame = capture.frames[-1]
    loop = Loop(capture, rows)
    frame.open_loop(loop)
    for _ in range(frame.rounds):
        row = capture.execute(torch.select, (rows, 0, 0), {})
        loop.given.append(row)
        loop.begin()
        yield row
        loop.end()
    frame.close_loop(loop)


def refused(capture: Capture, site: Site, found: str) -> Exception:
    """The error for a loop that cannot be read off its rounds."""
    return capture.refusal(
        site,
        f"a loop that runs as often as the input says: {found}",
        remedy="put its body into a function marked @onnxpatch.scan (rows that depend on the ones before), "
        "@onnxpatch.each (rows that do not) or @onnxpatch.while_loop, or write it for the whole tensor",
    )


def _numbers() -> dict[str, Any]:
    """The Python numbers among the local names of the user's code that is running."""
    frame = user_frame(_caller())
    found = {} if frame is None else frame.f_locals
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}


def _caller() -> Any:
    import sys

    return sys._getframe(2)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(a.node.expr == b.node.expr)
    return a is b or bool(a == b)
