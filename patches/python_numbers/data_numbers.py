"""int(), float() and max() of data, such as the longest of some lengths, stay in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes

REFUSED = "Could not extract specialized integer from data-dependent expression u0"
LINK = "https://github.com/pytorch/pytorch/issues/143222"


class _Longest(torch.nn.Module):
    """As many tokens as the longest sequence has, and the mask of those that each has."""

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        longest = int(max(lengths))
        places = torch.arange(longest)
        return x[:, :longest].cumsum(1), places[None] < lengths[:, None]


def _sequences() -> list[tuple[Tensor, Tensor]]:
    # The longest of the lengths is to decide: only once is it the size of the input, too.
    given = ((7, (3, 5)), (6, (6, 2, 1)), (4, (1,)), (15, (12, 14)))
    return [(torch.randn(len(lengths), size, 3), torch.tensor(lengths)) for size, lengths in given]


@patch(
    "builtins.int",
    name="int-of-data",
    why=REFUSED,
    link=LINK,
    exporters=("dynamo",),
    proof=Proof(
        _Longest,
        _sequences,
        ({0: "b", 1: "n"}, {0: "b"}),
        fails=("dynamo",),
        reason="data-dependent expression",
        beside=("max-of-a-tensor",),
        unchanged=lambda: Computes(lambda x, lengths: x * int(2.5)),
    ),
)
def int_of_data(original: Callable[..., int], *args: Any) -> object:
    """`int(tensor)` as a size that the data decides, towards zero; a constant tensor's is a number."""
    if len(args) != 1 or not _is_number(args[0]):
        return NotImplemented
    # Only a whole number's item() may be a size under torch.export.
    return args[0].to(torch.int64).item()


class _Share(torch.nn.Module):
    """Each value as a share of the longest sequence."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x / (1 + float(max(lengths)))


@patch(
    "builtins.float",
    name="float-of-data",
    why=REFUSED,
    link=LINK,
    exporters=("dynamo",),
    proof=Proof(
        _Share,
        _sequences,
        ({0: "b", 1: "n"}, {0: "b"}),
        fails=("dynamo",),
        reason="data-dependent expression",
        beside=("max-of-a-tensor",),
        unchanged=lambda: Computes(lambda x, lengths: x * float("2.5")),
    ),
)
def float_of_data(original: Callable[..., float], *args: Any) -> object:
    """`float(tensor)` as a tensor without axes, which does not promote what it is computed with, as a number."""
    if len(args) != 1 or not _is_number(args[0]):
        return NotImplemented
    number = args[0].reshape(())
    return number if number.is_floating_point() else number.to(torch.get_default_dtype())


def _is_number(value: object) -> bool:
    if not isinstance(value, Tensor) or value.is_complex():
        return False
    return all(isinstance(size, int) and size == 1 for size in value.shape)


class _Extremes(torch.nn.Module):
    """As many tokens as the longest sequence has, less the shortest one's."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return x[:, : max(lengths)].cumsum(1) - min(lengths)


@patch(
    "builtins.max",
    "builtins.min",
    name="max-of-a-tensor",
    why="max(lengths) compares row by row in Python: the example's longest stays, and as many rows as it has",
    link=LINK,
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Extremes,
        _sequences,
        ({0: "b", 1: "n"}, {0: "b"}),
        fails=("dynamo", "trace"),
        reason="missing 1 required|Split",
        unchanged=lambda: Computes(lambda x, lengths: x * max(2.5, 1)),
    ),
)
def max_of_a_tensor(original: Callable[..., object], *args: object, **kwargs: object) -> object:
    """`max(lengths)` of a tensor with one axis: its largest element, without axes, as Python gives it."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Tensor) or args[0].dim() != 1:
        return NotImplemented
    # amax: `max(0)` would give the index as well.
    return args[0].amax(0) if original.__name__ == "max" else args[0].amin(0)
