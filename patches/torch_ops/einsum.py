"""torch.einsum of two tensors as MatMul or Mul, which onnxruntime is faster on than on Einsum."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.formulas import products
from onnxpatch.formulas.proof_models import Computes


class _Attention(torch.nn.Module):
    """Scores and their use, as models of many authors write them, with a weight for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(32))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        k = torch.einsum("bhjd,d->bhjd", k, self.weight)
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k)
        return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), k)


@patch(
    "torch.einsum",
    "torch.functional.einsum",
    name="einsum",
    why="Einsum takes up to three times as long as MatMul and Mul in onnxruntime, which fuses nothing with it",
    link="https://github.com/microsoft/onnxruntime/issues/5897",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Attention,
        # The last one is large: times are compared at it.
        inputs=lambda: [(torch.randn(b, 4, n, 32), torch.randn(b, 4, m, 32)) for b, n, m in
                        ((2, 5, 7), (3, 8, 2), (4, 128, 512))],
        dynamic_shapes=({0: "batch", 2: "queries"}, {0: "batch", 2: "keys"}),
        slower={"dynamo": 1.2, "trace": 1.2},
    ),
)  # fmt: skip
def einsum(original: object, equation: str, *operands: object) -> Tensor:
    """Writes an einsum of two tensors, of float32 or whole numbers, as one product. Else Einsum stays."""
    tensors: Sequence[Any] = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if not isinstance(equation, str) or len(tensors) != 2:
        return NotImplemented
    made = products.einsum(equation, *tensors)
    return NotImplemented if made is None else made


class _Counted(torch.nn.Module):
    """Values times whole numbers, of which eager makes floats."""

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return torch.einsum("bi,bj->bij", x, counts)


@patch(
    "torch.einsum",
    "torch.functional.einsum",
    name="einsum-of-two-dtypes",
    why="Type parameter (T) of Optype (Einsum) bound to different types (tensor(float) and tensor(int64))",
    link="https://onnx.ai/onnx/operators/onnx__Einsum.html",
    exporters=("dynamo", "trace"),
    proof=Proof(
        build=_Counted,
        inputs=lambda: [(torch.randn(b, n), torch.arange(b * m).reshape(b, m)) for b, n, m in ((2, 3, 4), (5, 1, 7))],
        dynamic_shapes=({0: "batch", 1: "n"}, {0: "batch", 1: "m"}),
        fails=("dynamo", "trace"),
        reason="different types|Type Error",
        unchanged=lambda: Computes(lambda x, counts: torch.einsum("bi,bj->bij", x, x)),
    ),
)
def einsum_of_two_dtypes(original: Callable[..., Tensor], equation: str, *operands: object) -> Tensor:
    """The operands in the dtype that eager promotes them to, where it takes them at all."""
    tensors: Sequence[Any] = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    dtypes = {one.dtype for one in tensors if isinstance(one, Tensor)}
    if not isinstance(equation, str) or len(tensors) != 2 or len(dtypes) < 2:
        return NotImplemented
    # ONNX promotes nothing: all operands of a node have one dtype.
    common = functools.reduce(torch.promote_types, dtypes)
    return original(equation, *(one.to(common) for one in tensors))
