"""Arguments and outputs as flat leaves, whatever holds them: pytrees, dataclasses, plain objects with tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from onnxpatch._torch import pytree


@dataclass
class Value:
    """A nested value as its leaves and a form; objects that hold tensors are opened too."""

    leaves: list[Any]
    form: tuple[Any, ...]

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        return _rebuild(self.form, iter(leaves))


def opened(value: Any) -> Value:
    """Leaves of pytrees, dataclasses and plain objects with tensors among their attributes."""
    leaves: list[Any] = []
    return Value(leaves, _open(value, leaves, depth=3))


def _open(value: Any, into: list[Any], depth: int) -> tuple[Any, ...]:
    flat, spec = pytree.tree_flatten(value)
    parts: list[Any] = []
    for leaf in flat:
        held = vars(leaf) if depth and _holds_tensors(leaf) else None
        if held is None:
            into.append(leaf)
            parts.append(None)
        else:
            parts.append((leaf, _open(dict(held), into, depth - 1)))
    return spec, tuple(parts)


def _holds_tensors(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type) or not hasattr(leaf, "__dict__"):
        return False
    return any(isinstance(v, torch.Tensor) for v in vars(leaf).values())


def _rebuild(form: tuple[Any, ...], leaves: Iterator[Any]) -> Any:
    spec, parts = form
    flat = []
    for part in parts:
        if part is None:
            flat.append(next(leaves))
        else:
            made = copy.copy(part[0])
            vars(made).update(_rebuild(part[1], leaves))
            flat.append(made)
    return pytree.tree_unflatten(flat, spec)


def form_key(form: tuple[Any, ...]) -> tuple[Any, ...]:
    """What two forms must share to be the same: containers and classes, not the objects themselves."""
    spec, parts = form
    return str(spec), tuple(None if p is None else (type(p[0]), form_key(p[1])) for p in parts)


def output_leaves(output: Any) -> list[Any]:
    """Tensors and whole numbers of an output, in order; the rest is no output of a graph."""
    found: list[Any] = []
    for leaf in opened(output).leaves:
        if isinstance(leaf, torch.Tensor | torch.SymInt) or (isinstance(leaf, int) and not isinstance(leaf, bool)):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += output_leaves([getattr(leaf, f.name) for f in fields(leaf)])
    return found
