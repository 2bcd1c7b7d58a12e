"""Nested arguments and outputs as flat lists of leaves, objects with tensors among their attributes included.

torch's pytree opens tuples, lists, dicts and registered classes, and takes everything else for a leaf. Some models pass
plain objects between their modules (a cache, an `Encoding` with masks). Those are opened here too:

    {"x": tensor, "cache": Cache(keys=tensor, used=3)}    leaves: tensor, tensor, 3

`Value.rebuild` puts new leaves into copies, so that an object of the caller is never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch

from onnxpatch._torch import pytree

_DEEPEST = 3  # objects inside objects: deep enough for caches of layers, and an end for those that refer to each other


class _Form(NamedTuple):
    """The containers of a value without its leaves.

    spec: the pytree; objects: for each of its leaves the object that was opened there and the form of its attributes,
    or None for a plain leaf.
    """

    spec: pytree.TreeSpec
    objects: tuple[tuple[object, _Form] | None, ...]


@dataclass
class Value:
    """A nested value as its leaves and its form."""

    leaves: list[object]
    form: _Form

    def rebuild(self, leaves: Sequence[object]) -> Any:
        """The value with other leaves, in the same order. Containers and objects are new."""
        return _rebuild(self.form, iter(leaves))


# What two values of the same form share: the text of the pytree, and for objects their class and the key of their form.
FormKey = tuple[str, tuple["tuple[type, FormKey] | None", ...]]


def opened(value: object) -> Value:
    """`value` with its pytrees, and its objects that have tensors among their attributes, taken apart."""
    leaves: list[object] = []
    return Value(leaves, _open(value, leaves, _DEEPEST))


def _open(value: object, into: list[object], depth: int) -> _Form:
    flat, spec = pytree.tree_flatten(value)
    objects: list[tuple[object, _Form] | None] = []
    for leaf in flat:
        if depth and _has_tensor_attributes(leaf):
            objects.append((leaf, _open(dict(vars(leaf)), into, depth - 1)))
        else:
            into.append(leaf)
            objects.append(None)
    return _Form(spec, tuple(objects))


def _has_tensor_attributes(leaf: object) -> bool:
    # The tensors of a module are its weights, and not values that are passed on.
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type) or not hasattr(leaf, "__dict__"):
        return False
    return any(isinstance(v, torch.Tensor) for v in vars(leaf).values())


def _rebuild(form: _Form, leaves: Iterator[object]) -> Any:
    flat = []
    for part in form.objects:
        if part is None:
            flat.append(next(leaves))
        else:
            original, attributes = part
            # Not by the constructor, whose arguments are not known.
            duplicate = copy.copy(original)
            vars(duplicate).update(_rebuild(attributes, leaves))
            flat.append(duplicate)
    return pytree.tree_unflatten(flat, form.spec)


def form_key(form: _Form) -> FormKey:
    """A key that is equal for two forms with the same containers and classes, whatever objects they were read from."""
    return str(form.spec), tuple(None if p is None else (type(p[0]), form_key(p[1])) for p in form.objects)


def output_leaves(output: object) -> list[object]:
    """The tensors and whole numbers of an output, in order; flags, strings and None are no graph outputs."""
    found: list[Any] = []
    for leaf in opened(output).leaves:
        if isinstance(leaf, torch.Tensor | torch.SymInt) or (isinstance(leaf, int) and not isinstance(leaf, bool)):
            found.append(leaf)
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            found += output_leaves([getattr(leaf, f.name) for f in fields(leaf)])
    return found
