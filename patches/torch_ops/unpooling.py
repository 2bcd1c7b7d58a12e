"""Max unpooling: values back to the places where max pooling found them, at a dynamic size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, patch
from onnxpatch.formulas.proof_models import Computes


class _Unpooled(torch.nn.Module):
    """SegNet's and QuickNAT's way: pooled with the places kept, and back; once to an odd size that is given."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        small, places = functional.max_pool2d(x, 2, return_indices=True)
        odd = functional.pad(x, (0, 1, 0, 1))
        cut, cut_places = functional.max_pool2d(odd, 2, return_indices=True)
        back = functional.max_unpool2d(small.exp(), places, (2, 2))
        return back, functional.max_unpool2d(cut, cut_places, (2, 2), output_size=list(odd.shape[2:]))


@patch(
    "torch.nn.functional.max_unpool1d",
    "torch.nn.functional.max_unpool2d",
    "torch.nn.functional.max_unpool3d",
    name="max-unpool",
    why="cond must be a bool, but got a Tensor; Exporting the operator 'aten::max_unpool2d' to ONNX opset version 18 "
    "is not supported",
    link="https://github.com/pytorch/pytorch/issues/25088",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Unpooled,
        lambda: [(torch.randn(b, 3, h, w),) for b, h, w in ((2, 8, 6), (1, 4, 10), (3, 4, 4))],
        ({0: "batch", 2: "height", 3: "width"},),
        fails=("trace",),
        # dynamo is right without it, and must stay so.
        exporters=("dynamo",),
        reason="must be a bool|aten::max_unpool2d",
        unchanged=lambda: Computes(lambda x: functional.max_pool2d(x, 2)),
    ),
)
def max_unpool(
    original: Callable[..., Tensor],
    input: Tensor,
    indices: Tensor,
    kernel_size: object,
    stride: object = None,
    padding: object = 0,
    output_size: Any = None,
) -> Tensor:
    """Scatters the values over the places of one map, as one axis."""
    rank = int(original.__name__.removesuffix("d")[-1])
    lead = input.dim() - rank
    if output_size is None:
        kernel = _each(kernel_size, rank)
        steps, pads = _each(kernel if stride is None else stride, rank), _each(padding, rank)
        sizes = [(input.shape[lead + i] - 1) * steps[i] - 2 * pads[i] + kernel[i] for i in range(rank)]
    else:
        sizes = list(output_size)[-rank:]
    front = list(input.shape[:lead])
    places = 1
    for size in sizes:
        places = places * size
    empty = input.new_zeros([*front, places])
    # Max pooling counts its places within one map, so each map is one row.
    return empty.scatter(-1, indices.flatten(lead), input.flatten(lead)).reshape([*front, *sizes])


def _each(value: object, rank: int) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value] * rank
