"""Fills the inputs at other sizes: with values like the example's, or with its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from onnxpatch.verification.rescaled_indices import Moves, follows, rescaled

Fill = Callable[[torch.Tensor, Sequence[int], torch.Generator, Moves], torch.Tensor]


def drawn(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """Random values with the example's dtype, range and sign; ints if it has ints."""
    if example.numel() == 0:
        # An empty example has no values to draw from.
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    # On the CPU, whose generator gives the same numbers on every machine.
    flat = example.detach().reshape(-1).cpu()
    count = math.prod(shape)
    # From the example's own values: what is an index or a token id there stays a valid one.
    values = flat[torch.randint(0, flat.numel(), (count,), generator=generator)]
    if flat.is_floating_point():
        values = _varied(flat, values, generator)
    values = values.reshape(tuple(shape))
    # Bins and times are sorted: eager's answer is not defined for others.
    order = _order(example)
    return (values if order is None else values.sort(-1, descending=order < 0).values).to(example.device)


def _order(example: torch.Tensor) -> int | None:
    """1 where the values rise along the last axis, -1 where they fall; None for others, and for fewer than 5."""
    if example.dim() == 0 or example.shape[-1] < 5 or example.is_complex() or example.dtype == torch.bool:
        return None
    steps = example.detach()[..., 1:] >= example.detach()[..., :-1], example[..., 1:] <= example[..., :-1]
    rises, falls = (bool(step.all()) for step in steps)
    return None if rises == falls else 1 if rises else -1


def _varied(flat: torch.Tensor, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values in the example's range. Zeros or ones are a dummy example: any float will do. Ints may be ids: kept."""
    noise = torch.rand(values.shape, generator=generator).to(values.dtype)
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        return noise if float(flat[0]) in (0.0, 1.0) else values * (0.75 + noise / 2)
    if bool((flat == flat.round()).all()):
        return values
    known = flat[~flat.isnan()]
    # Not beyond the example's: an image in [0, 1] that leaves it may be refused.
    return (values * (0.95 + noise / 10)).clamp(*known.aminmax()) if known.numel() else values


def tiled(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """The example, cut or repeated along each axis. Keeps order, one-hot rows, masks and positions."""
    out = example.detach()
    for axis, size in enumerate(shape):
        if out.shape[axis] != size and out.shape[axis]:
            out = out.index_select(axis, torch.arange(size, device=out.device) % out.shape[axis])
    return out.clone()


def fitted(example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()) -> torch.Tensor:
    """As `tiled`, with ints below the smallest new size: indices and lengths must fit a smaller tensor."""
    out = tiled(example, shape, generator)
    changed = [size for size, old in zip(shape, example.shape, strict=True) if size != old]
    if changed and not out.is_floating_point() and out.dtype != torch.bool:
        out = out.clamp(max=max(0, min(changed) - 1))
    return out


def following(
    example: torch.Tensor, shape: Sequence[int], generator: torch.Generator, moves: Moves = ()
) -> torch.Tensor:
    """Ints, bools and masks as `rescaled` makes them, so that lengths fit the new sizes; others as `drawn`."""
    if example.is_complex() or (example.is_floating_point() and bool((example != example.round()).any())):
        return drawn(example, shape, generator)
    return rescaled(example, shape, moves)


def fills(values: Sequence[torch.Tensor], moves: Moves) -> Sequence[Fill]:
    """Ways to fill the inputs at other sizes; those that eager will probably accept come first.

    Lengths and offsets of something that changes its size change with it.
    """
    if all(v.is_floating_point() and bool((v != v.round()).any()) for v in values):
        return (drawn,)  # no values that depend on a size
    if any(follows(value, moves) for value in values):
        return following, drawn, tiled, fitted
    return drawn, tiled, fitted, following
