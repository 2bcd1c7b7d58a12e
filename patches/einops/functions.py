"""einops.rearrange, reduce and repeat called in a forward, and einops.layers.torch.Rearrange and Reduce.

A pattern is written by its plan, with few nodes; that of a layer is made before the export starts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch.overrides import is_tensor_like

from onnxpatch import Proof, RefusedError, Settings, When, patch
from onnxpatch.formulas.einops import rearrange as rearranging
from onnxpatch.formulas.einops import reduce_and_repeat as reducing
from onnxpatch.formulas.einops.axes import AxisPlan, Operation, explained, plan_axes, refuse
from onnxpatch.formulas.einops.rearrange import REDUCTIONS, Stepwise, rearranged_by, stepwise
from onnxpatch.formulas.einops.reduce_and_repeat import reduced_by
from onnxpatch.formulas.nodes import as_ints

_WHY = "einops in forward: a node for every size it touches (Shape, Gather, Concat), and slow transposes"
_LINK = "https://github.com/pytorch/pytorch/issues/137629"
_function = functools.partial(
    patch, why=_WHY, link=_LINK, when=When(requires=("einops>=0.7",), exporters=("dynamo", "trace"))
)


def planned(
    tensor: Any, pattern: str, operation: Operation, reduction: str, lengths: Mapping[str, Any]
) -> tuple[torch.Tensor, AxisPlan, tuple[Any, ...]] | None:
    """(tensor, plan, lengths) of a call of einops; None for a call that only einops can handle.

    Raises RefusedError for a pattern that does not fit the tensor.
    """
    if isinstance(tensor, list) and tensor and all(map(is_tensor_like, tensor)):
        # einops takes a list as one tensor, with a new axis in front.
        tensor = torch.stack(tensor)
    # A complex tensor is a Pair here, which einops does not know.
    if not is_tensor_like(tensor) or not isinstance(pattern, str):
        return None
    given = tuple(lengths.values())
    # einops itself takes, or refuses, lengths such as NumPy's ints.
    if not all(_is_size(length) for length in given):
        return None
    plan = plan_axes(pattern, operation, tuple(lengths), tensor.dim())
    if plan.refuses(as_ints(tensor.shape), as_ints(given)):
        refuse(tensor.shape, pattern, lengths, reduction)
    return tensor, plan, given


def _is_size(length: object) -> bool:
    if isinstance(length, torch.Tensor):  # a traced size
        return length.dim() == 0 and not length.dtype.is_floating_point and length.dtype != torch.bool
    return isinstance(length, int | torch.SymInt) and not isinstance(length, bool)


class _CallsEinops(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import einops  # noqa: F401  # loaded before the model is patched, as it is where a model's own module imports it


class _Patches(_CallsEinops):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from einops import rearrange

        patches = rearrange(x, "b c (h p) (w q) -> b h w (p q c)", p=4, q=4)
        return rearrange(patches.softmax(dim=-1), "b h w (n d) -> b n (h w) d", n=8)


class _Pooled(_CallsEinops):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from einops import reduce

        return reduce(x, "b c (h 2) (w 2) -> b c h w", "max")


class _Upsampled(_CallsEinops):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from einops import repeat

        return repeat(x, "b c h w -> b c (h 2) (w 2)")


def _images() -> list[tuple[torch.Tensor]]:
    # The last one is an empty batch, which einops takes and a -1 in a Reshape may not.
    return [(torch.randn(size),) for size in ((2, 3, 8, 12), (3, 3, 16, 4), (1, 3, 4, 20), (0, 3, 8, 8))]


@_function(
    "einops.rearrange",
    name="einops-rearrange-function",
    proof=Proof(
        _Patches, _images, fails=("trace",), leaner=("dynamo",), reason="cannot be reshaped", unchanged="fixed sizes"
    ),
)
def rearrange(original: Callable[..., torch.Tensor], tensor: object, pattern: str, **lengths: object) -> torch.Tensor:
    try:
        found = planned(tensor, pattern, "rearrange", "rearrange", lengths)
    # einops is called for its own error message.
    except RefusedError:
        return explained(lambda: original(tensor, pattern, **lengths))
    return NotImplemented if found is None else rearranging.rearrange_axes(*found)


@_function("einops.reduce", name="einops-reduce-function", proof=Proof(_Pooled, _images, leaner=("dynamo", "trace")))
def reduce(
    original: Callable[..., torch.Tensor], tensor: Any, pattern: str, reduction: Any, **lengths: Any
) -> torch.Tensor:
    known = isinstance(reduction, str) and reduction in reducing.REDUCTIONS
    try:
        found = planned(tensor, pattern, "reduce", reduction, lengths) if known else None
    except RefusedError:
        return explained(lambda: original(tensor, pattern, reduction, **lengths))
    # The mean of integers is an error of einops' own.
    if found is None or (reduction == "mean" and not (found[0].is_floating_point() or found[0].is_complex())):
        return NotImplemented
    tensor, plan, given = found
    return reducing.reduce_axes(tensor, plan, reduction, given)


@_function(
    "einops.repeat",
    name="einops-repeat-function",
    proof=Proof(_Upsampled, _images, leaner=("dynamo", "trace"), unchanged="fixed sizes"),
)
def repeat(original: Callable[..., torch.Tensor], tensor: object, pattern: str, **lengths: object) -> torch.Tensor:
    try:
        found = planned(tensor, pattern, "repeat", "repeat", lengths)
    except RefusedError:
        return explained(lambda: original(tensor, pattern, **lengths))
    return NotImplemented if found is None else reducing.repeat_axes(*found)


_ISSUE = "https://github.com/arogozhnikov/einops/issues/355"
_LAYER_WHY = "symbolic for __getitem__ produced an incorrect number of outputs (expected 2, but got 1)"


def prepare(pattern: str, reduction: str, lengths: dict[str, Any]) -> dict[str, object]:
    """The attributes that a `Stepwise` needs. Raises RefusedError for a pattern without a plan."""
    fixed = all(isinstance(length, int) for length in lengths.values())
    if not fixed:
        raise RefusedError(f"an axis length of {pattern!r} is not a plain number: {lengths}")
    try:
        return stepwise(pattern, reduction, lengths)
    except RefusedError as error:
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


_layer = functools.partial(patch, why=_LAYER_WHY, link=_ISSUE)


def _layer_proof(build: Callable[[], torch.nn.Module], unchanged: Literal["fixed sizes"] | None = None) -> Proof:
    reason = "symbolic for __getitem__"
    return Proof(build, _images, fails=("script",), leaner=("dynamo", "trace"), reason=reason, unchanged=unchanged)


def _own(cls_path: str) -> When:
    """A subclass inherits pattern and forward; one with a forward of its own computes something else."""
    return When(requires=("einops>=0.7",), subclasses=True, accepts=own_forward(cls_path))


@_layer(
    "einops.layers.torch.Rearrange",
    name="einops-rearrange",
    when=_own("einops.layers.torch.Rearrange"),
    proof=_layer_proof(_patch_embedding, unchanged="fixed sizes"),
)
class _RearrangeStandIn(Stepwise):
    @staticmethod
    def onnxpatch_prepare(module: Any, settings: Settings) -> dict[str, object]:
        return prepare(module.pattern, "rearrange", module.axes_lengths)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return self.onnxpatch_steps_applied(input)
        else:
            return rearranged_by(self, input)


@_layer(
    "einops.layers.torch.Reduce",
    name="einops-reduce",
    when=_own("einops.layers.torch.Reduce"),
    proof=_layer_proof(_pooling),
)
class _ReduceStandIn(Stepwise):
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
