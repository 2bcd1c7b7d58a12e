"""What is recorded of a plain loop while its first rounds run: the calls of each round, and where each tensor was made.

for row in x:                  rows_taken: 3 rows
    total = total * 0.5 + row  rounds: [[mul, add], [mul, add], [mul, add]]; `total` is made at (1, 0) of each
"""

from __future__ import annotations

import torch

from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.refusals import Refusals
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.decisions.place import Site, here
from onnxpatch.errors import BranchError

Place = tuple[int, int]
"""Where a round made a tensor: (number of the torch call in the round, number of the tensor in its result)."""
ROW: Place = (-1, 0)
"""The place of a round's own row, which no call made."""


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


def loop_refusal(refusals: Refusals, site: Site, found: str) -> BranchError:
    """The error for a loop whose first rounds do not show what the others do."""
    return refusals.refusal(
        site,
        f"a loop whose number of rounds depends on the input: {found}",
        remedy="put its body into a function marked @onnxpatch.scan (rows that depend on the ones before), "
        "@onnxpatch.each (rows that do not) or @onnxpatch.while_loop, or write it for the whole tensor",
    )
