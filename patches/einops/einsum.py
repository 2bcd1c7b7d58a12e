"""einops.einsum of narrow ints, computed in an int type for which onnxruntime has an Einsum."""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch import op
from onnxpatch.formulas.einops.axes import explained

_NARROW = (torch.uint8, torch.int8, torch.int16)  # ONNX allows Einsum of these, onnxruntime has no kernel


class _Counted(torch.nn.Module):
    """Counts how often two things occur together, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        import einops  # noqa: F401  # loaded before the model is patched, as it is where a model's own module imports it

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        from einops import einsum

        return einsum(left, right, "batch step one, batch step two -> batch one two")


def _counts() -> list[tuple[torch.Tensor, torch.Tensor]]:
    # The last one is an empty batch.
    sizes = ((2, 5, 3), (3, 9, 2), (1, 2, 4), (0, 3, 3))
    return [(torch.randint(0, 99, size).to(torch.uint8), torch.randint(0, 99, size).to(torch.uint8)) for size in sizes]


@op(
    "einops.einsum",
    name="einops-einsum",
    why="Could not find an implementation for Einsum(12), for tensors of bytes",
    reason="Could not find an implementation for Einsum",
    link="https://onnx.ai/onnx/operators/onnx__Einsum.html",
    requires=("einops>=0.7",),
    tries=_counts,
    case=_Counted,
    beside=("einsum",),
)
def einsum(original: Callable[..., torch.Tensor], *tensors_and_pattern: object) -> torch.Tensor:
    tensors = [each for each in tensors_and_pattern if isinstance(each, torch.Tensor)]
    dtypes = {each.dtype for each in tensors}
    if len(dtypes) != 1 or not dtypes <= set(_NARROW):
        return NotImplemented
    # Overflow wraps around: the low bits are the same in a wider type.
    wide = [each.to(torch.int32) if isinstance(each, torch.Tensor) else each for each in tensors_and_pattern]
    return explained(lambda: original(*wide)).to(dtypes.pop())
