"""einops.layers.torch.EinMix as one Conv or one MatMul."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from onnxpatch import Proof, RefusedError, When, patch
from onnxpatch.formulas.einops.axes import AxisPlan, sides_of
from onnxpatch.formulas.einops.rearrange import rearrange_axes
from onnxpatch.formulas.nodes import as_ints

Names = tuple[str, ...]
Axes = tuple[Any, ...]
Sides = tuple[tuple[Names, ...], tuple[Names, ...]]
_FEW = 32  # patches of an image, under which one product of the batch is faster than a Conv for each image


def _embedding() -> torch.nn.Module:
    from einops.layers.torch import EinMix

    return EinMix("b c (h p) (w q) -> b (h w) d", weight_shape="c p q d", bias_shape="d", c=3, p=8, q=8, d=64)


def _scaling() -> torch.nn.Module:
    """A weight along an axis that stays: a Mul."""
    from einops.layers.torch import EinMix

    return EinMix("b c h w -> b c h w", weight_shape="c", bias_shape="c", c=3)


@patch(
    "einops.layers.torch.EinMix",
    name="einops-einmix",
    why="EinMix is an Einsum over five or six axes, which takes up to three times as long as Conv and MatMul",
    link="https://einops.rocks/3-einmix-layer/",
    when=When(requires=("einops>=0.7",), exporters=("dynamo", "trace")),
    proof=Proof(
        _embedding,
        # The last image is large: times are compared at it.
        lambda: [(torch.randn(size),) for size in ((2, 3, 16, 24), (3, 3, 32, 8), (1, 3, 256, 256))],
        slower={"dynamo": 1.2, "trace": 1.2},
        unchanged=_scaling,
    ),
)
class _EinMixStandIn:
    """A float32 input times a weight: Conv where the sizes allow it, else MatMul, else the layer's own einsum."""

    def forward(self: Any, input: Tensor) -> Tensor:
        plan = plan_mixing(self, input)
        if plan is None:
            return NotImplemented
        form = plan.convolution if plan.serves_convolution(input, self.axes_lengths) else plan.matmul
        return form(input, self.weight, self.bias, self.axes_lengths)


@dataclass(frozen=True)
class _Mixing:
    """left, right: the dimensions of input and output, each with its axes. weight: the axes of the weight.

    summed: axes of input and weight alone, in the input's order. columns: of weight and output alone, in the output's.
    """

    left: tuple[Names, ...]
    right: tuple[Names, ...]
    weight: Names
    summed: Names
    columns: Names

    def matmul(self, x: Tensor, weight: Tensor, bias: Tensor | None, lengths: Mapping[str, int]) -> Tensor:
        """One product of the input as (rows..., summed) and the weight as (summed, columns)."""
        rows = self._row_groups()
        known = self._given(lengths)
        made = torch.matmul(
            rearrange_axes(x, _plan(self.left, (*rows, self.summed), tuple(known)), tuple(known.values())),
            self._matrix(weight, self.summed, self.columns),
        )
        return self._arranged(made if bias is None else made + bias.reshape(-1), (*rows, self.columns), lengths)

    def fits(self, shape: Sequence[object], lengths: Mapping[str, int]) -> bool:
        """Whether the pattern takes an input of this shape, as far as its sizes are ints."""
        known = self._given(lengths)
        apart = tuple((axis,) for group in self.left for axis in group)
        return not _plan(self.left, apart, tuple(known)).refuses(shape, tuple(known.values()))

    def _given(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """The lengths of the input's axes, without those of columns."""
        return {name: length for name, length in lengths.items() if name not in self.columns}

    def _row_groups(self) -> tuple[Names, ...]:
        """The output's dimensions that have rows only, and other rows one by one, in the output's order."""
        found: list[Names] = []
        for group in self.right:
            rows = tuple(axis for axis in group if axis not in self.columns)
            found += [group] if group and rows == group else [(axis,) for axis in rows]
        return tuple(found)

    def convolution(self, x: Tensor, weight: Tensor, bias: Tensor | None, lengths: Mapping[str, int]) -> Tensor:
        """A Conv whose kernels and strides are the patches."""
        batch, channels, *space = self.left
        patch = [lengths[group[1]] if len(group) > 1 else 1 for group in space]
        kernels = self._matrix(weight, self.columns, self.summed).reshape(-1, lengths[channels[0]], *patch)
        convolve = F.conv1d if len(space) == 1 else F.conv2d
        made = convolve(x, kernels, None if bias is None else bias.reshape(-1), stride=patch)
        return self._arranged(made, (batch, self.columns, *((group[0],) for group in space)), lengths)

    def serves_convolution(self, x: Tensor, lengths: Mapping[str, int]) -> bool:
        """Whether a Conv does it, at least as fast as a MatMul, and refuses what einops refuses."""
        if not 3 <= len(self.left) <= 4 or not self._is_image(lengths):
            return False
        _, _, *space = self.left
        if all(len(group) == 1 for group in space):
            # A Conv of one pixel saves the two Transposes only if the output has the pixels last as well.
            return self.right[-len(space) :] == tuple(space)
        sizes = x.shape[2:]
        if not all(isinstance(size, int) for size in sizes):
            return False
        steps = (lengths[group[1]] if len(group) > 1 else 1 for group in space)
        return math.prod(size // step for size, step in zip(sizes, steps, strict=True)) >= _FEW

    def _is_image(self, lengths: Mapping[str, int]) -> bool:
        """Whether the input is (batch, channels, *space), with a patch of one axis at most in each axis of space."""
        batch, channels, *space = self.left
        if not (len(batch) == len(channels) == 1 and channels[0] in self.summed and batch[0] not in self.summed):
            return False
        patches = {(), *((axis,) for axis in self.summed)}
        return all(group and group[0] not in (*self.weight, *lengths) and group[1:] in patches for group in space)

    def _matrix(self, weight: Tensor, rows: Names, columns: Names) -> Tensor:
        """The weight as a matrix of these axes."""
        order = [self.weight.index(axis) for axis in (*rows, *columns)]
        moved = weight if order == sorted(order) else weight.permute(order)
        return moved if moved.dim() == 2 else moved.reshape(math.prod(moved.shape[: len(rows)]), -1)

    def _arranged(self, made: Tensor, dims: tuple[Names, ...], lengths: Mapping[str, int]) -> Tensor:
        """The result with the output's dimensions."""
        # A dimension of both is one axis, so that the lengths of its parts are not asked for.
        sides = [tuple((group,) if group in dims and group in self.right else group for group in side)
                 for side in (dims, self.right)]  # fmt: skip
        known = {name: length for name, length in lengths.items() if any(name in group for group in sides[0])}
        return rearrange_axes(made, _plan(sides[0], sides[1], tuple(known)), tuple(known.values()))


def plan_mixing(module: Any, x: Tensor) -> _Mixing | None:
    """The plan of an EinMix layer for an input, or None where neither Conv nor MatMul computes the same.

    None: axes that input, weight and output share (heads with weights of their own), a weight that is summed with
    nothing, an input axis that is summed alone, a bias along other axes than the columns, an input that does not fit.
    """
    if x.dtype != torch.float32 or not all(isinstance(length, int) for length in module.axes_lengths.values()):
        return None
    made = _mixing(module.pattern, module.weight_shape, tuple(module.axes_lengths), x.dim())
    if made is None or (module.bias_shape is not None and {*module.bias_shape.split()} != {*made.columns}):
        return None
    # Where it does not fit, the layer's own code has the error for it.
    return made if made.fits(as_ints(x.shape), module.axes_lengths) else None


@functools.lru_cache(maxsize=256)
def _mixing(pattern: str, weight_shape: str, names: Names, ndim: int) -> _Mixing | None:
    sides = _sides(pattern, ndim)
    if sides is None or any(sum(axis not in names for axis in group) > 1 for group in sides[0]):
        return None
    given, wanted = (list(itertools.chain.from_iterable(side)) for side in sides)
    weight = tuple(weight_shape.split())
    summed = tuple(axis for axis in given if axis in {*weight} - {*wanted})
    columns = tuple(axis for axis in wanted if axis in {*weight} - {*given})
    rows = [axis for axis in given if axis not in summed]
    if not (summed and columns and rows) or {*weight} != {*summed, *columns} or not {*rows} <= {*wanted}:
        return None
    return _Mixing(sides[0], sides[1], weight, summed, columns)


def _sides(pattern: str, ndim: int) -> Sides | None:
    """The names of each dimension's axes on both sides; None for a pattern with a number, or for other inputs."""
    try:
        left, right = (tuple(map(tuple, side)) for side in sides_of(pattern, ndim))
    except RefusedError:
        return None
    return None if len(left) != ndim or re.search(r"\b\d", pattern) else (left, right)


def _plan(left: Sequence[Axes], right: Sequence[Axes], names: Names) -> AxisPlan:
    """The plan of a rearrangement. names: axes whose lengths are given, in order."""
    places = {axis: place for place, axis in enumerate(axis for group in left for axis in group)}
    inputs, outputs = (tuple(tuple(places[axis] for axis in group) for group in side) for side in (left, right))
    open_axes = [[places[axis] for axis in group if axis not in names] for group in left]
    given = tuple(names.index(axis) if axis in names else -1 for axis in places)
    return AxisPlan(inputs, outputs, (0,) * len(places), given, tuple(one[0] if one else -1 for one in open_axes))
