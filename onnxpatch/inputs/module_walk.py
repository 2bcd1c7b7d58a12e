"""Finds every module of a model, also those in plain lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

# nn.Module.__init__ puts these first in __dict__; the user's attributes follow.
_OWN = tuple(vars(torch.nn.Module()))
_CONTAINERS = (list, tuple, dict)
Found = tuple[str, torch.nn.Module]


def modules(model: torch.nn.Module) -> Iterator[Found]:
    """(path, module) of every module under `model`, the root ("") first, parents before children.

    A module with several names comes once for each: the first name is its path, the others are aliases. The children
    of an alias are not visited again. Modules in plain containers get a path as Python would write it: `blocks[0]`.
    """
    seen: set[int] = set()
    stack: list[Found] = [("", model)]
    while stack:
        path, module = found = stack.pop()
        yield found
        if id(module) in seen:
            continue
        seen.add(id(module))
        children = _children(path + "." if path else "", module)
        if children:
            # A stack gives its last entry first, and paths are to come in the order of the model.
            children.reverse()
            stack += children


def _children(prefix: str, module: torch.nn.Module) -> list[Found]:
    attributes: dict[str, Any] = module.__dict__
    # A traced module keeps its submodules in C++, and has no such entry.
    submodules = attributes["_modules"] if "_modules" in attributes else dict(module.named_children())
    children = [(prefix + name, child) for name, child in submodules.items() if child is not None] if submodules else []
    # An attribute set before super().__init__() comes before torch's own; then look at all of them.
    usual = next(iter(attributes)) == _OWN[0]
    for name, value in islice(attributes.items(), len(_OWN) if usual else 0, None):
        if isinstance(value, _CONTAINERS) and value and name not in _OWN:
            children += _held(prefix + name, value)
    return children


def _held(path: str, container: Any) -> list[Found]:
    items = container.items() if isinstance(container, dict) else enumerate(container)
    return [(f"{path}[{key!r}]", value) for key, value in items if isinstance(value, torch.nn.Module)]
