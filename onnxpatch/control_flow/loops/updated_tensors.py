"""Knows what stands for the tensors that a plain loop updates in place, on one path (see `updates_in_place.py`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar, cast

import torch

from onnxpatch.control_flow.nests import rebuilt, tensors
from onnxpatch.control_flow.refusals import Refusals
from onnxpatch.decisions.place import Site

LeafT = TypeVar("LeafT")
NestT = TypeVar("NestT")


class UpdatedTensors:
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
        return rebuilt(values, self.newest)
