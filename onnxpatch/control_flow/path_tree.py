"""The tree of paths through one forward: a node for each decision, a leaf for each way the forward ended.

if x.sum() > 0:             PathNode(predicate=sum > 0)
    y = x * 2                 True:  PathNode(end=FinishedPath(calls=[sum, gt, mul], value=y))
else:                         False: PathNode(end=FinishedPath(calls=[sum, gt, neg], value=y))
    y = -x
return y
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from onnxpatch.control_flow.loops.inference import Loop
from onnxpatch.control_flow.pytrees import plain_values, tensors
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.decisions.ask import Site
from onnxpatch.patching.forward_state import Key


@dataclass(eq=False)
class FinishedPath:
    """One run of the forward to its end.

    decided_at: for each decision, how many calls were made before it. changed: module attributes that the run set.
    Either `value` is what the forward returned, or `error` what it raised.
    """

    calls: list[TorchCall]
    decided_at: list[int]
    value: object = None
    error: Exception | None = None
    changed: dict[Key, object] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)


@dataclass(eq=False)
class PathNode:
    """A decision with its two outcomes in `children`, by answer; or the end of a path.

    on_sizes: whether sizes decide, not data.
    """

    predicate: torch.Tensor | None = None
    site: Site | None = None
    on_sizes: bool = False
    children: dict[bool, PathNode] = field(default_factory=dict)
    end: FinishedPath | None = None

    def finished(self) -> Iterator[FinishedPath]:
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

    def first(self) -> FinishedPath:
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


def path_summary(path: FinishedPath) -> list[tuple[str, object]]:
    """The calls outside loops with their plain arguments, and the returned value: equal for paths that do the same."""
    # Calls inside rounds do not count: one of the two paths that are compared has a round more.
    in_rounds = {id(call) for loop in path.loops for calls in loop.rounds for call in calls}
    rows = {id(row) for loop in path.loops for row in loop.rows_taken}
    outside = [c for c in path.calls if id(c) not in in_rounds and not any(id(t) in rows for t in tensors(c.result))]
    return [(call.name, plain_values((call.args, call.kwargs))) for call in outside] + [
        ("return", plain_values(path.value))
    ]
