"""Casts that change nothing, and bfloat16 times whole numbers."""

from __future__ import annotations

import gc
import itertools

import torch
from torch import Tensor, nn

from onnxpatch import Proof, op


class _Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        # torch.onnx.export tries torch.export with strict=False, then with strict=True. Dynamo, in the second, passes
        # the cast but cannot trace this call: so the proof fails as `reason` says.
        gc.get_count()
        self.classifier = self.classifier.to(torch.float32)
        return self.classifier(x)


@op(
    "nn.Module.to",
    name="idle-cast",
    why="_apply(): Couldn't swap Linear.weight: Cannot swap t1 because it has weakref associated with it",
    reason="Couldn't swap",
    link="https://github.com/pytorch/pytorch/issues/126021",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n, 4),
    sizes=(3, 5, 1),
    case=_Router,
)
def idle_cast(module: nn.Module, *args: object, **kwargs: object) -> nn.Module:
    """Returns the module as it is if only a dtype is asked for and all its parameters and buffers have that dtype."""
    wanted = [*args, *kwargs.values()]
    if len(wanted) != 1 or not isinstance(wanted[0], torch.dtype) or not kwargs.keys() <= {"dtype"}:
        return NotImplemented
    held = itertools.chain(module.parameters(), module.buffers())
    # A cast leaves whole numbers as they are.
    return module if all(t.dtype == wanted[0] or not t.is_floating_point() for t in held) else NotImplemented


class _Slopes(torch.nn.Module):
    def forward(self, mask: Tensor) -> Tensor:
        places = (mask.cumsum(-1) - 1) * mask
        slopes = torch.tensor([0.25, 0.0625, 0.3])
        return (slopes[..., None].bfloat16() * places[:, None]).to(torch.float32)


@op(
    "mul",
    "__mul__",
    "__rmul__",
    name="bfloat16-times-integers",
    why="Type 'tensor(complex128)' of input parameter of operator (Mul) is invalid: the exporter takes bfloat16 for "
    "it; Could not find an implementation for Mul(14): onnxruntime multiplies no bfloat16 on the CPU",
    link="https://github.com/pytorch/pytorch/issues/129064",
    proof=Proof(
        build=_Slopes,
        inputs=lambda: [(torch.ones(b, n, dtype=torch.int64),) for b, n in ((2, 5), (3, 300), (1, 1))],
        fails=("trace",),
        exporters=("dynamo",),
        reason="complex128",
    ),
)
def times_integers(input: Tensor, other: Tensor) -> Tensor:
    """Multiplies in float32, where the product of two bfloat16 numbers is exact, and rounds once."""
    if not isinstance(other, Tensor) or not isinstance(input, Tensor):
        return NotImplemented
    if torch.bfloat16 not in (input.dtype, other.dtype) or input.is_floating_point() == other.is_floating_point():
        return NotImplemented
    # Whole numbers are rounded to bfloat16 first, as eager promotes them.
    return (input.bfloat16().float() * other.bfloat16().float()).bfloat16()
