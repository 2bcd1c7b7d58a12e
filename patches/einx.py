"""einx's elementwise functions called inside a forward: the axes are put in order, and torch broadcasts."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, When, patch
from onnxpatch.patching.proof import computing

FOLDED: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "multiply": torch.mul, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "maximum": torch.maximum, "minimum": torch.minimum,
}  # fmt: skip
PAIRED: dict[str, Callable[..., Tensor]] = {
    "subtract": torch.sub, "true_divide": torch.true_divide, "divide": torch.true_divide, "less": torch.lt,
    "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge, "equal": torch.eq, "not_equal": torch.ne,
}  # fmt: skip


_WHY = "The input tensor cannot be reshaped to the requested shape: einx compiles a call for the sizes of the example"
_LINK = "https://einx.readthedocs.io/"
_WHEN = When(requires=("einx",), exporters=("dynamo", "trace"))


class _CallsEinx(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        importlib.import_module("einx")  # before the model is patched, as where a model's own module imports it


class _Masked(_CallsEinx):
    """Values under a mask of their rows."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        einx: Any = importlib.import_module("einx")
        return einx.where("b n, b n d, -> b n d", mask, x, 0.0)


class _Distances(_CallsEinx):
    """Distances between places, and a gate for each head."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        einx: Any = importlib.import_module("einx")
        places = torch.arange(x.shape[1])
        apart = einx.subtract("i, j -> 1 1 i j", places, places)
        gated = einx.multiply("b h, b n h -> b h n", x[:, 0], x)
        added = einx.add("... d, d", gated.transpose(1, 2), x[0, 0])
        streams = einx.add("b n d, s d -> (b s) n d", x, x[0, :1])
        return apart, added, einx.less("j, i -> i j", places, mask.sum(1)), streams


class _Taken(_CallsEinx):
    """Rows of a table by their places, of one table and of one for each batch."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        einx: Any = importlib.import_module("einx")
        places = mask.long().cumsum(1) - 1
        codes = einx.get_at("[c] d, b ... -> b ... d", x[0], places)
        return codes, einx.get_at("b [c] d, b n -> b d n", x, places), einx.get_at("b n [d], b n -> n b", x, places % 6)


def _rows() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(b, n, 6), torch.rand(b, n) > 0.4) for b, n in ((2, 5), (3, 9), (1, 2))]


def _proof(build: type[torch.nn.Module]) -> Proof:
    return Proof(
        build,
        _rows,
        fails=("dynamo", "trace"),
        reason="cannot be reshaped|static shape|broadcast",
        unchanged=lambda: computing(lambda x, mask: torch.where(mask[..., None], x, 0.0)),
    )


@patch(
    "einx.where",
    name="einx-where",
    why=_WHY,
    link=_LINK,
    when=_WHEN,
    proof=_proof(_Masked),
)
def where_by_pattern(original: Callable[..., Tensor], description: str, mask: object, x: object, y: object) -> Tensor:
    """Handles patterns of plain axes and one ellipsis, and axes composed in the result. einx keeps the others."""
    plain, groups = _composed(description)
    aligned = _aligned(plain, (mask, x, y))
    return NotImplemented if aligned is None else _flattened(torch.where(*aligned), groups)


@patch(
    *(f"einx.{name}" for name in (*FOLDED, *PAIRED)),
    name="einx-elementwise",
    why=_WHY,
    link=_LINK,
    when=_WHEN,
    proof=_proof(_Distances),
)
def elementwise(original: Callable[..., Tensor], description: str, *tensors: object) -> Tensor:
    """Handles the patterns that `where_by_pattern` handles. More than two tensors are combined one after the other."""
    plain, groups = _composed(description)
    aligned = _aligned(plain, tensors)
    # torch.maximum and its like take no Python number.
    if aligned is None or not all(isinstance(one, Tensor) for one in aligned):
        return NotImplemented
    if original.__name__ in FOLDED:
        return _flattened(functools.reduce(FOLDED[original.__name__], aligned), groups)
    if len(aligned) != 2:
        return NotImplemented
    return _flattened(PAIRED[original.__name__](*aligned), groups)


@patch(
    "einx.get_at",
    name="einx-get-at",
    why=_WHY,
    link=_LINK,
    when=_WHEN,
    proof=_proof(_Taken),
)
def taken(original: Callable[..., Tensor], description: str, table: Tensor, *indices: Any) -> Tensor:
    """Handles one axis in brackets, and its indices in one tensor. einx keeps the others."""
    inputs, _, output = description.partition("->")
    source, _, places = inputs.partition(",")
    bracketed = re.findall(r"\[(\w+)\]", source)
    if len(indices) != 1 or len(bracketed) != 1 or "[" in places + output:
        return NotImplemented
    axes, given = _axes(re.sub(r"[\[\]]", "", source), table), _axes(places, indices[0])
    if axes is None or given is None:
        return NotImplemented
    kept = [axis for axis in axes if axis not in (*given, *bracketed)]
    wanted = _result(output, sum(axis.startswith("...") for axis in given))
    if wanted is None or sorted(wanted) != sorted((*given, *kept)) or "1" in wanted:
        return NotImplemented
    shared = [axis for axis in axes if axis in given]
    ordered = table.permute([axes.index(axis) for axis in (*shared, *bracketed, *kept)])
    # Places in the rows of all shared axes together, as einx counts them.
    place, step = indices[0], ordered.shape[len(shared)]
    for k, axis in reversed([*enumerate(shared)]):
        behind = [1] * (len(given) - given.index(axis) - 1)
        start = torch.arange(ordered.shape[k], device=table.device) * step
        place, step = place + start.reshape(-1, *behind), step * ordered.shape[k]
    return ordered.flatten(0, len(shared))[place].permute([(*given, *kept).index(axis) for axis in wanted])


def _composed(description: str) -> tuple[str, list[tuple[int, int]]]:
    """The pattern without the parentheses of its result, and which axes they hold: `(b s) n` are 0 to 1."""
    inputs, arrow, output = description.partition("->")
    if "(" not in output or "..." in output or output.count("(") != output.count(")"):
        return description, []
    groups: list[tuple[int, int]] = []
    count = 0
    for part in re.findall(r"\([^()]*\)|[^\s()]+", output):
        names = part.strip("()").split()
        if part.startswith("(") and len(names) > 1:
            groups.append((count, count + len(names) - 1))
        count += len(names)
    return f"{inputs}{arrow}{output.replace('(', ' ').replace(')', ' ')}", groups


def _flattened(tensor: Tensor, groups: list[tuple[int, int]]) -> Tensor:
    # The last first: merging axes renumbers those behind them.
    for first, last in reversed(groups):
        tensor = tensor.flatten(first, last)
    return tensor


def _aligned(description: str, tensors: tuple[object, ...]) -> list[Any] | None:
    """Each tensor with the axes of the result, in their order, those that it lacks of size 1."""
    inputs, arrow, output = description.partition("->")
    parts = inputs.split(",")
    if len(parts) != len(tensors):
        return None
    found = [_axes(part, tensor) for part, tensor in zip(parts, tensors, strict=True)]
    known = [axes for axes in found if axes is not None and "1" not in axes]
    if len(known) != len(tensors):
        return None
    rests = {len([axis for axis in axes if axis.startswith("...")]) for axes in known} - {0}
    # Without an arrow the result has the axes of the longest pattern.
    wanted = _result(output, max(rests, default=0)) if arrow else max(known, key=len)
    named = set().union(*known)
    if wanted is None or len(rests) > 1 or not named <= set(wanted) <= named | {"1"}:
        return None
    return [_in_order(tensor, axes, wanted) for tensor, axes in zip(tensors, known, strict=True)]


def _axes(part: str, tensor: object) -> list[str] | None:
    """The names of a tensor's axes by its pattern; None for what is no list of plain names."""
    count = tensor.dim() if isinstance(tensor, Tensor) else 0
    axes = part.split()
    found = _result(part, count - len(axes) + 1 if "..." in axes else 0)
    return found if found is not None and len(found) == count and len(set(found)) == count else None


def _result(part: str, rest: int) -> list[str] | None:
    axes = part.split()
    if not all(axis == "..." or axis == "1" or axis.isidentifier() for axis in axes) or rest < 0:
        return None
    return [name for axis in axes for name in ([f"...{i}" for i in range(rest)] if axis == "..." else [axis])]


def _in_order(tensor: object, axes: list[str], wanted: list[str]) -> object:
    if not isinstance(tensor, Tensor) or not axes:
        return tensor
    order = [axes.index(axis) for axis in wanted if axis in axes]
    found = tensor if order == sorted(order) else tensor.permute(order)
    for place, axis in enumerate(wanted):
        if axis not in axes:
            found = found.unsqueeze(place)
    return found
