"""Relations that the sizes of an example have, and other sizes that have them."""

from __future__ import annotations

import torch
from torch import nn

from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import DynamicDim, dynamic_dims, relations, sizes_with
from onnxpatch.inputs.leaves import Inputs


def dims(*sizes: tuple[str, int]) -> list[DynamicDim]:
    model, (names, numbers) = nn.Identity(), zip(*sizes, strict=True)
    inputs = Inputs(model, (torch.ones(numbers),))
    return dynamic_dims(inputs, shapes.read_shapes(inputs, (dict(enumerate(names)),), None, None, "trace"))


def words(*sizes: tuple[str, int]) -> list[str]:
    return [one.words for one in relations(dims(*sizes))]


def test_equal_sizes_sums_and_multiples_are_found() -> None:
    assert words(("b", 1), ("p", 5), ("n", 4), ("t", 9)) == ["t = p+n"]
    assert words(("h", 6), ("w", 6))[0] == "w = h"
    assert words(("n", 5), ("m", 10)) == ["m = 2*n"]
    assert words(("n", 5), ("m", 7), ("b", 1)) == []


def test_each_free_size_moves_alone_and_all_together() -> None:
    free = dims(("b", 2), ("p", 5), ("n", 4), ("t", 9))
    (relation,) = (one for one in relations(free) if one.words == "t = p+n")
    tried = list(sizes_with(relation, free))
    assert all(relation.holds(sizes) for sizes in tried)
    assert {"b": 2, "p": 6, "n": 4, "t": 10} in tried and {"b": 3, "p": 6, "n": 5, "t": 11} in tried
    assert {"b": 3, "p": 5, "n": 4, "t": 9} in tried and not any(sizes["b"] == 0 for sizes in tried)
