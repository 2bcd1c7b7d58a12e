"""einops.pack and unpack called in a forward: a plan for each tensor, and slices that read few sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from onnxpatch import Proof, When, patch
from onnxpatch.formulas.einops.axes import AxisPlan, explained, product
from onnxpatch.formulas.einops.rearrange import rearrange_axes
from onnxpatch.formulas.nodes import as_ints

_WHY = "einops.pack and unpack in forward: a node for every size they touch (Shape, Gather, Unsqueeze, Concat)"
_LINK = "https://einops.rocks/4-pack-and-unpack/"


def packing_plan(before: int, packed: int, after: int) -> AxisPlan:
    """The plan that merges `packed` dimensions, after the first `before` ones, into one."""
    alone = [(axis,) for axis in range(before + packed + after)]
    middle = tuple(range(before, before + packed))
    count = len(alone)
    outputs = (*alone[:before], middle, *alone[before + packed :])
    return AxisPlan(tuple(alone), outputs, (0,) * count, (-1,) * count, tuple(range(count)))


def unpacking_plan(before: int, lengths: Sequence[object], after: int) -> AxisPlan:
    """The plan that splits them again. lengths: of the dimensions; one may be -1."""
    packing = packing_plan(before, len(lengths), after)
    middle = packing.outputs[before]
    given = tuple(axis - before if axis in middle else -1 for axis in range(len(packing.inputs)))
    open_axis = next((axis for axis in middle if _is_open(lengths[axis - before])), -1)
    # Outside of the packed ones every dimension is one axis, as long as the dimension itself.
    inferred = tuple(open_axis if group == middle else group[0] for group in packing.outputs)
    if open_axis >= 0:
        given = tuple(-1 if axis == open_axis else place for axis, place in enumerate(given))
    return AxisPlan(packing.outputs, packing.inputs, packing.fixed, given, inferred)


def _is_open(length: object) -> bool:
    return isinstance(length, int) and length == -1


def slices(shapes: Sequence[Sequence[Any]]) -> list[slice]:
    """The slice of each packed shape. After a length of -1, slices are counted from the end of the axis.

    The last one extends to the end of the axis, so that its length need not be read.
    """
    lengths = [None if any(map(_is_open, shape)) else product(shape) for shape in shapes]
    unknown = lengths.index(None) if None in lengths else len(lengths) - 1
    # From the start up to the open length, and from the end back to it.
    positions: list[Any] = [0]
    for length in lengths[:unknown]:
        # Not 0 + length: under trace that is one more node.
        positions.append(positions[-1] + length if len(positions) > 1 else length)
    ends: list[Any] = [None]
    for length in reversed(lengths[unknown + 1 :]):
        ends.append(-length if ends[-1] is None else ends[-1] - length)
    edges = [*positions, *reversed(ends)]
    return [slice(start, end) for start, end in pairwise(edges)]


def _sides(pattern: str, operation: str) -> tuple[int, int]:
    """The numbers of axes before and after the "*"; einops' error for a pattern that it refuses."""
    from einops.packing import analyze_pattern

    before, after, _ = explained(lambda: analyze_pattern(pattern, operation))
    return before, after


def _is_shape(shape: object) -> bool:
    if not isinstance(shape, tuple | list):
        return False
    sizes = [length for length in shape if not isinstance(length, torch.SymInt | torch.Tensor)]
    return all(isinstance(length, int) and (length > 0 or length == -1) for length in sizes)


def _fits(shapes: Sequence[Sequence[Any]], size: object) -> bool:
    """Whether an axis of this size can be unpacked so, as far as sizes are ints."""
    size, *lengths = as_ints([size, *(length for shape in shapes for length in shape)])
    if sum(map(_is_open, lengths)) > 1:
        return False
    if not all(isinstance(number, int) for number in (size, *lengths)):
        return True
    found = iter(lengths)
    taken = [product([next(found) for _ in shape]) for shape in shapes]
    # What is left for the shape with the -1, and the product of its other lengths, which must divide that.
    rest = size - sum(length for length in taken if length > 0)
    unit = next((-length for length in taken if length < 0), 0)
    return rest % unit == 0 if unit and rest >= 0 else rest == 0 and not unit


class _TwoPacked(torch.nn.Module):
    """Packs tokens of an image and of a text into one sequence, and unpacks them."""

    def __init__(self) -> None:
        super().__init__()
        import einops  # noqa: F401  # loaded before the model is patched, as it is where a model's own module imports it

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> tuple[torch.Tensor, ...]:
        from einops import pack, unpack

        tokens, shapes = pack([image, text], "b * d")
        image, text = unpack(tokens.softmax(dim=-1), shapes, "b * d")
        first, rest = unpack(image, [(1,), (-1, 3)], "b h * d")
        return text, first, rest


def _pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    sizes = ((2, 3, 7, 8, 6), (3, 5, 4, 8, 1), (1, 2, 10, 8, 9))  # einops refuses an empty batch
    return [(torch.randn(b, h, w, d), torch.randn(b, n, d)) for b, h, w, d, n in sizes]


_PROOF = Proof(_TwoPacked, _pairs, leaner=("dynamo", "trace"))


@patch("einops.pack", name="einops-pack", why=_WHY, link=_LINK,
       when=When(requires=("einops>=0.7",), exporters=("dynamo", "trace")), proof=_PROOF)  # fmt: skip
def pack(original: Any, tensors: Any, pattern: str) -> tuple[torch.Tensor, list[tuple[Any, ...]]]:
    known = isinstance(tensors, tuple | list) and tensors and all(isinstance(x, torch.Tensor) for x in tensors)
    if not known:
        return NotImplemented
    before, after = _sides(pattern, "pack")
    if any(x.dim() < before + after for x in tensors):
        return explained(lambda: original(tensors, pattern))
    # Tensors of different ranks: each has a number of packed dimensions of its own.
    plans = [packing_plan(before, x.dim() - before - after, after) for x in tensors]
    # einops packs with a length of -1, which torch refuses for an empty tensor.
    parts = [rearrange_axes(x, plan, filled=True) for x, plan in zip(tensors, plans, strict=True)]
    shapes = [tuple(x.shape)[before : x.dim() - after] for x in tensors]
    return torch.cat(parts, dim=before), shapes


@patch("einops.unpack", name="einops-unpack", why=_WHY, link=_LINK,
       when=When(requires=("einops>=0.7",), exporters=("dynamo", "trace")), proof=_PROOF)  # fmt: skip
def unpack(original: Any, tensor: Any, packed_shapes: Any, pattern: str) -> list[torch.Tensor]:
    known = isinstance(tensor, torch.Tensor) and isinstance(packed_shapes, tuple | list) and len(packed_shapes) > 0
    if not known:
        return NotImplemented
    before, after = _sides(pattern, "unpack")
    fits = tensor.dim() == before + after + 1 and all(map(_is_shape, packed_shapes))
    if not fits or not _fits(packed_shapes, tensor.shape[before]):
        return explained(lambda: original(tensor, packed_shapes, pattern))
    return [
        _element(tensor[(*[slice(None)] * before, part)], before, shape, after)
        for part, shape in zip(slices(packed_shapes), packed_shapes, strict=True)
    ]


def _element(part: torch.Tensor, before: int, shape: Sequence[object], after: int) -> torch.Tensor:
    lengths = [1 if _is_open(length) else length for length in shape]
    return rearrange_axes(part, unpacking_plan(before, shape, after), lengths, filled=any(map(_is_open, shape)))
