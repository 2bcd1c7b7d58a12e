"""Finding every module of a model, also those that only a plain list, tuple or dict holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

# What nn.Module keeps in every __dict__; user containers are elsewhere.
_OWN = frozenset(vars(torch.nn.Module()))
_CONTAINERS = (list, tuple, dict)


def modules(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """(path, module) of every module under `model`, the root ("") first, parents before children.

    A module under several names comes once for each name: the first is its path, the others aliases. Children of
    an alias are not walked again. Modules in plain containers get a path as Python would write it: `blocks[0]`.
    """
    seen: set[int] = set()
    stack: list[tuple[str, torch.nn.Module]] = [("", model)]
    while stack:
        path, module = stack.pop()
        yield path, module
        if id(module) in seen:
            continue
        seen.add(id(module))
        stack.extend(reversed(list(_children(path, module))))


def _children(path: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    prefix = path + "." if path else ""
    attributes = vars(module)
    for name, child in attributes["_modules"].items():
        if child is not None:
            yield prefix + name, child
    for name, value in attributes.items():
        if name not in _OWN and isinstance(value, _CONTAINERS) and value:
            yield from _held(prefix + name, value)


def _held(path: str, container: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in items:
        if isinstance(value, torch.nn.Module):
            yield f"{path}[{key!r}]", value
