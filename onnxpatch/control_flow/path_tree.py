"""The tree of paths through one forward: a node for each decision, a leaf for each way the forward ended.

    if x.sum() > 0:             PathNode(predicate=sum > 0)
        y = x * 2                 True:  PathNode(end=Path(calls=[sum, gt, mul], value=y))
    else:                         False: PathNode(end=Path(calls=[sum, gt, neg], value=y))
        y = -x
    return y

And the loops on data that one path runs through, also inside each other:

    for row in x: ...        `open`, some rounds, `close`       (`rows.py` runs the rounds)
    while x.sum() > 1: ...   `another_round`, once for each time that the condition is asked

A loop on data runs a few rounds only, which are compared and then become one Loop or Scan of the graph. After it, its
tensors stand for the results of all rounds, in later calls (`in_call`) and in what forward returns (`final_states`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch

from onnxpatch.control_flow.loops.inference import Loop
from onnxpatch.control_flow.merging.output_template import Template, assembled
from onnxpatch.control_flow.optional_outputs import Refusals
from onnxpatch.control_flow.pytrees import map_leaves, plain_values, tensors
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.decisions.ask import Site
from onnxpatch.decisions.functions_run import raised_on_purpose
from onnxpatch.patching.forward_state import Key


@dataclass(eq=False)
class PathNode:
    """A decision with its two outcomes in `children`, by answer; or the end of a path.

    on_sizes: whether sizes decide, not data.
    """

    predicate: torch.Tensor | None = None
    site: Site | None = None
    on_sizes: bool = False
    children: dict[bool, PathNode] = field(default_factory=dict)
    end: Path | None = None

    def finished(self) -> Iterator[Path]:
        """The paths below that returned; those that raised are left out."""
        if self.end is not None:
            if self.end.error is None:
                yield self.end
            return
        for child in self.children.values():
            yield from child.finished()

    @property
    def returns(self) -> bool:
        """Whether any path below returns."""
        return next(self.finished(), None) is not None

    def first(self) -> Path:
        """The first path below, whether it returned or raised."""
        return self.end if self.end is not None else next(iter(self.children.values())).first()

    def sites(self) -> Iterator[Site]:
        """Source lines of the decisions in this tree."""
        if self.site is not None:
            yield self.site
            for child in self.children.values():
                yield from child.sites()

    def nodes(self) -> Iterator[PathNode]:
        """This node and every node below it."""
        yield self
        for child in self.children.values():
            yield from child.nodes()


def path_summary(path: Path) -> list[tuple[str, object]]:
    """The calls outside loops with their plain arguments, and the returned value: equal for paths that do the same."""
    # Calls inside rounds do not count: one of the two paths that are compared has a round more.
    in_rounds = {id(call) for loop in path.loops for calls in loop.rounds for call in calls}
    rows = {id(row) for loop in path.loops for row in loop.rows_taken}
    outside = [c for c in path.calls if id(c) not in in_rounds and not any(id(t) in rows for t in tensors(c.result))]
    return [(call.name, plain_values((call.args, call.kwargs))) for call in outside] + [
        ("return", plain_values(path.value))
    ]


LeafT = TypeVar("LeafT")
NestT = TypeVar("NestT")
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")


class Path:
    """One run of the forward.

    calls: the torch calls so far. decided_at: for each decision, how many calls were made before it. Of a run that has
    ended, either `value` is what the forward returned, or `error` what it raised; changed: module attributes that it
    set. loops: in the order in which they began, each of which runs this many `rounds`.
    """

    def __init__(self, capture: Recording, calls: list[TorchCall], rounds: int) -> None:
        self.capture, self.calls, self.rounds = capture, calls, rounds
        self.decided_at: list[int] = []
        self.value: object = None
        self.error: Exception | None = None
        self.changed: dict[Key, object] = {}
        self.loops: list[Loop] = []
        self.updated = _UpdatedTensors()

    @property
    def running(self) -> Loop | None:
        """The innermost loop whose rounds are running now, or None."""
        return next((loop for loop in reversed(self.loops) if not loop.done), None)

    def open(self, loop: Loop) -> None:
        """Register a loop whose first round is about to run."""
        self.loops.append(loop)

    def end_round(self, loop: Loop) -> None:
        """Finish recording a round."""
        if self.running is not loop:
            raise loop.refusal("it runs interleaved with another such loop")
        loop.end()

    def close(self, loop: Loop) -> None:
        """Compare the rounds of a loop whose last round is over."""
        loop.finish()
        if self.running is not None:
            self.updated.end(self.running.hold_inner(loop))

    def another_round(self, predicate: torch.Tensor, site: Site) -> bool:
        """Answer the condition of a `while` on data: True for as many rounds as are compared."""
        loop = self.running
        if loop is None or loop.rows is not None or loop.site != site:
            loop = Loop(self.capture, None)
            self.open(loop)
        self.end_round(loop)
        loop.predicates.append(predicate)
        # Asked before every round and once after the last, when the answer False ends Python's loop.
        if len(loop.predicates) <= self.rounds:
            loop.begin()
            return True
        self.close(loop)
        return False

    def in_round(self, asked: TorchCall | None, site: Site) -> bool | None:
        """The answer to `if i == 0` of the running loop's own number; None where no loop runs.

        Another branch inside a loop is refused: rounds that took different paths would not be one body.
        """
        running = [loop for loop in self.loops if not loop.done]
        answers = [answer for loop in running if (answer := loop.in_round(asked)) is not None]
        if running and not answers:
            raise running[-1].refusal(f"line {site.line} branches inside it")
        return answers[0] if answers else None

    def refuse_error(self, error: Exception) -> None:
        """Raise the refusal of a loop that is left by an error which the model did not raise on purpose."""
        if self.running is not None and not raised_on_purpose(error):
            text = " ".join(str(error).split())[:200]
            raise self.running.refusal(f"{type(error).__name__} inside it: {text}") from error

    def in_call(self, function: object, args: ArgsT, kwargs: KwargsT) -> tuple[ArgsT, KwargsT]:
        """The arguments of a call, with the results of finished loops in place of tensors that single rounds made."""
        for loop in self.loops:
            if loop.done:
                args, kwargs = loop.in_call(function, args, kwargs)
        return args, kwargs

    def final_states(self, value: object) -> object:
        """What the forward returned, with the final states of its loops."""
        if not self.loops:
            return value
        if self.running is not None:
            raise self.running.refusal("break or return leaves it before its last round")
        # As for the root, since what a forward returns may have None in it.
        template = Template([value], of_root=True)
        results = {id(slot): slot.values[0] for slot in template.slots}
        results = self.updated.in_call(self.capture, results, self.loops[-1].site)
        for loop in self.loops:
            results = {slot: loop.final(leaf) for slot, leaf in results.items()}
        return assembled(template.structure, results)


class _UpdatedTensors:
    """The tensors of one path that loops have updated.

    written_back: (tensor, index, new row) of the row that was updated last.
    """

    def __init__(self) -> None:
        self._newest: dict[int, torch.Tensor] = {}  # by id of an updated tensor
        self._overtaken: set[int] = set()  # ids of tensors that shared memory with one before it was updated
        self._alive: list[torch.Tensor] = []  # so that no id is used again
        self.written_back: tuple[object, ...] = ()

    def note(self, target: torch.Tensor, new: torch.Tensor, sharing: Collection[int]) -> None:
        """`new` stands for `target` from now on. sharing: ids of the tensors that show a part of `target`."""
        self._newest[id(target)] = new
        self._overtaken.update(sharing)
        self._alive.append(target)

    def end(self, states: Mapping[int, torch.Tensor]) -> None:
        """A loop inside another one has ended. states: its final state, by id of what its last round made."""
        self._newest = {name: states.get(id(newest), newest) for name, newest in self._newest.items()}

    def newest(self, leaf: LeafT) -> LeafT:
        """What stands for a value now; the value itself where nothing does."""
        while id(leaf) in self._newest:
            leaf = cast(LeafT, self._newest[id(leaf)])
        return leaf

    def in_call(self, refusals: Refusals, values: NestT, site: Site | None = None) -> NestT:
        """The arguments of a call at `site`, with what stands for updated tensors."""
        if not self._newest:
            return values
        if any(id(tensor) in self._overtaken for tensor in tensors(values)):
            raise refusals.refusal(
                site,
                "a view is used after a loop has updated the tensor that it shows",
                remedy="take the view after the loop, or a copy of it before",
            )
        return map_leaves(values, self.newest)
