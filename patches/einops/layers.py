"""einops.layers.torch.Rearrange and Reduce: the pattern becomes a plan before the export starts."""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch import Proof, RefusedError, Settings, When, patch
from onnxpatch.formulas.einops.axes import UnplannedError
from onnxpatch.formulas.einops.rearrange import REDUCTIONS, Stepwise, rearranged_by, stepwise
from onnxpatch.formulas.einops.reduce_and_repeat import reduced_by

_ISSUE = "https://github.com/arogozhnikov/einops/issues/355"
_WHY = "symbolic for __getitem__ produced an incorrect number of outputs (expected 2, but got 1)"


def prepare(pattern: str, reduction: str, lengths: dict[str, Any]) -> dict[str, object]:
    """The attributes that a `Stepwise` needs. Raises RefusedError for a pattern without a plan."""
    fixed = all(isinstance(length, int) for length in lengths.values())
    if not fixed:
        raise RefusedError(f"an axis length of {pattern!r} is not a plain number: {lengths}")
    try:
        return stepwise(pattern, reduction, lengths)
    except UnplannedError as error:
        raise RefusedError(
            f"onnxpatch has no ONNX form for the pattern {pattern!r}; einops' own code is exported"
        ) from error


def own_forward(cls_path: str) -> Any:
    """A function for `accepts=` that refuses subclasses with a forward of their own."""

    def accepts(module: torch.nn.Module, settings: Settings) -> str | None:
        owner = next(cls for cls in type(module).__mro__ if "forward" in vars(cls))
        path = f"{owner.__module__}.{owner.__qualname__}"
        return None if path == cls_path else f"{path} has a forward of its own"

    return accepts


def _patch_embedding() -> torch.nn.Module:
    from einops.layers.torch import Rearrange

    rearrange = Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=4, p2=4)
    return torch.nn.Sequential(rearrange, torch.nn.LayerNorm(48), torch.nn.Linear(48, 8))


def _pooling() -> torch.nn.Module:
    from einops.layers.torch import Reduce

    return Reduce("b c (h p1) (w p2) -> b (h w) c", "max", p1=2, p2=2)


def _images() -> list[tuple[torch.Tensor]]:
    # The last one is an empty batch, which einops takes and a -1 in a Reshape may not.
    return [(torch.randn(size),) for size in ((2, 3, 8, 12), (3, 3, 16, 4), (1, 3, 4, 20), (0, 3, 8, 8))]


@patch(
    "einops.layers.torch.Rearrange",
    name="einops-rearrange",
    why=_WHY,
    link=_ISSUE,
    when=When(
        requires=("einops>=0.7",),
        subclasses=True,
        # A subclass inherits pattern and forward; one with a forward of its own computes something else.
        accepts=own_forward("einops.layers.torch.Rearrange"),
    ),
    proof=Proof(
        _patch_embedding,
        _images,
        fails=("script",),
        leaner=("dynamo", "trace"),
        reason="symbolic for __getitem__",
        unchanged="fixed sizes",
    ),
)
class RearrangeStandIn(Stepwise):
    @staticmethod
    def onnxpatch_prepare(module: Any, settings: Settings) -> dict[str, object]:
        return prepare(module.pattern, "rearrange", module.axes_lengths)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self.onnxpatch_steps_applied(input)
        else:
            return rearranged_by(self, input)


@patch(
    "einops.layers.torch.Reduce",
    name="einops-reduce",
    why=_WHY,
    link=_ISSUE,
    when=When(requires=("einops>=0.7",), subclasses=True, accepts=own_forward("einops.layers.torch.Reduce")),
    proof=Proof(
        _pooling,
        _images,
        fails=("script",),
        leaner=("dynamo", "trace"),
        reason="symbolic for __getitem__",
    ),
)
class ReduceStandIn(Stepwise):
    @staticmethod
    def onnxpatch_prepare(module: Any, settings: Settings) -> dict[str, object]:
        if module.reduction not in REDUCTIONS[1:]:
            raise RefusedError(f"the layer has no reduction {module.reduction!r} in eager either")
        return prepare(module.pattern, module.reduction, module.axes_lengths)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self.onnxpatch_steps_applied(input)
        else:
            return reduced_by(self, input)
