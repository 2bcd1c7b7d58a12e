"""`module.to(dtype)` in forward, where the module has that dtype already: routers of experts do so in every call."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from onnxpatch import Proof, patch


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


@patch(
    "torch.nn.Module.to",
    name="idle-cast",
    why="_apply(): Couldn't swap Linear.weight: Cannot swap t1 because it has weakref associated with it",
    link="https://github.com/pytorch/pytorch/issues/126021",
    exporters=("dynamo",),
    proof=Proof(
        build=_Router,
        inputs=lambda: [(torch.randn(n, 4),) for n in (3, 5, 1)],
        dynamic_shapes=({0: "length"},),
        fails=("dynamo",),
        reason="Couldn't swap",
    ),
)
def idle_cast(original: Callable[..., nn.Module], module: nn.Module, *args: object, **kwargs: object) -> nn.Module:
    """Returns the module as it is if only a dtype is asked for and all its parameters and buffers have that dtype."""
    wanted = [*args, *kwargs.values()]
    if len(wanted) != 1 or not isinstance(wanted[0], torch.dtype) or not kwargs.keys() <= {"dtype"}:
        return NotImplemented
    held = itertools.chain(module.parameters(), module.buffers())
    # A cast leaves whole numbers as they are.
    return module if all(t.dtype == wanted[0] or not t.is_floating_point() for t in held) else NotImplemented
