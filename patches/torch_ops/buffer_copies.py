"""A buffer that forward overwrites with `copy_` and reads later: LongRoPE's frequencies."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, patch, running_model


class _Frequencies(torch.nn.Module):
    short: Tensor
    long: Tensor
    now: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("short", torch.rand(4))
        self.register_buffer("long", torch.rand(4))
        self.register_buffer("now", torch.rand(4))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        self.now.copy_(torch.where(positions.max() > 6, self.long, self.short))
        return x * self.now


@patch(
    "torch.Tensor.copy_",
    name="buffer-copy",
    why="Exporting the operator 'aten::copy' to ONNX is not supported",
    link="https://github.com/pytorch/pytorch/issues/97731",
    exporters=("trace",),
    proof=Proof(
        build=_Frequencies,
        # 9 positions take the other buffer than the example.
        inputs=lambda: [(torch.randn(n, 4), torch.arange(n)) for n in (3, 9, 1)],
        dynamic_shapes=({0: "length"},) * 2,
        fails=("trace",),
        reason="aten::copy",
    ),
)
def buffer_copy(original: Callable[..., Tensor], input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Writes the copy as an assignment to a slice of the whole buffer, which has an ONNX form."""
    running = running_model()
    # A tensor that is no buffer of the model has a form already; a 0-d one cannot be sliced.
    if running is None or input.dim() == 0 or not any(input is own for own in running.tensors.values()):
        return NotImplemented
    input[:] = src  # a slice has a form, all of it as `...` has none
    return input
