"""`DeclaredOutputs`: what forwards marked with `optional_output` returned in one export, for sentinels and flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass

import torch

from onnxpatch.control_flow.nests import tensors
from onnxpatch.control_flow.optional_outputs.decorator import OptionalOutput

Declared = tuple[OptionalOutput, torch.Tensor | None]
"""What a forward was marked with, and the argument that gives the sentinel its shape."""


class DeclaredOutputs:
    """missing: set when an optional output was None."""

    def __init__(self) -> None:
        self.missing: Declared | None = None
        self._declared: dict[int, Declared] = {}
        self._alive: list[object] = []  # so that no id is used again

    def declare(self, output: object, mark: OptionalOutput, like: torch.Tensor | None) -> None:
        """Note the tensors that a marked forward returns on this path. like: the shape of the sentinel."""
        if output is None:
            self.missing = mark, like
            return
        # `tensors` opens containers, and takes a dataclass for a plain value.
        fields = is_dataclass(output) and not isinstance(output, type)
        for tensor in tensors(list(vars(output).values()) if fields else output):
            self._declared[id(tensor)] = mark, like
        self._alive.append(output)

    def mark(self, values: Sequence[object]) -> OptionalOutput | None:
        """The mark of the forward that returned one of the values; None where none was marked."""
        return next((self._declared[id(v)][0] for v in values if id(v) in self._declared), None)

    def sentinel(self, values: Sequence[object]) -> tuple[torch.Tensor | None, float]:
        """(the tensor whose shape the sentinel takes, its fill) as declared; (None, 0) where nothing was."""
        found = next((self._declared[id(v)] for v in values if id(v) in self._declared), None)
        return (None, 0) if found is None else (found[1], found[0].fill)
