"""Negative axes, `x.permute(0, -1, 1)`, which the TorchScript exporter writes into an attribute that forbids them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch


class _Turned(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            x.permute(0, -1, 1),
            torch.permute(x, (-1, 0, -2)),
            x.movedim(-1, -3),
            torch.moveaxis(x, (0, -1), (-1, 0)),
        )


@patch(
    "torch.permute",
    "torch.Tensor.permute",
    "torch.movedim",
    "torch.Tensor.movedim",
    "torch.moveaxis",
    "torch.Tensor.moveaxis",
    name="negative-axes",
    why="Node (/Transpose) Op (Transpose) Invalid attribute perm: the exported file does not load",
    link="https://github.com/pytorch/pytorch/issues/97296",
    exporters=("trace",),
    proof=Proof(
        build=_Turned,
        inputs=lambda: [(torch.randn(b, n, 4),) for b, n in ((2, 3), (3, 5), (1, 1))],
        dynamic_shapes=({0: "batch", 1: "length"},),
        fails=("trace",),
        reason="perm",
    ),
)
def permute(original: Callable[..., Tensor], x: Tensor, *axes: object, **named: object) -> Tensor:
    """Makes the call with axes counted from the front."""
    rank = x.dim()
    if "permute" in original.__name__:
        order = _numbers(named["dims"] if "dims" in named else axes[0] if len(axes) == 1 else axes)
    else:
        source, destination = (_numbers(one) for one in (*axes, *named.values()))
        order = _moved(rank, [a % rank for a in source], [a % rank for a in destination])
    whole = [axis % rank for axis in order]
    return NotImplemented if list(order) == whole and "permute" in original.__name__ else x.permute(whole)


def _numbers(axes: Any) -> list[int]:
    return list(axes) if isinstance(axes, tuple | list | torch.Size) else [axes]


def _moved(rank: int, source: list[int], destination: list[int]) -> list[int]:
    """`movedim` as a permutation."""
    place = dict(zip(destination, source, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in source)
    # The axes that are not named keep their order.
    return [place[axis] if axis in place else next(rest) for axis in range(rank)]
