"""Finds the target of a patch by its dotted path, in modules that are loaded already. Nothing is imported."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any

ANY_TORCH_FUNCTION = "torch.*"

_MISSING = object()


def misspelled(path: str) -> bool:
    """Whether the library of a dotted path is loaded and has nothing there.

    False for a module that is not loaded yet, or that loads its names lazily: it may have the name later.
    """
    parts = path.split(".")
    if path == ANY_TORCH_FUNCTION or parts[0] == "*" or resolve(path) is not None:
        return False
    for cut in range(len(parts) - 1, 0, -1):
        home = sys.modules.get(".".join(parts[:cut]))
        if home is not None:
            lazy = type(home) is not types.ModuleType or hasattr(home, "__getattr__")
            return not lazy and not _is_module(".".join(parts[: cut + 1]))
    return False


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def loaded(paths: Iterable[str]) -> list[tuple[str, Any]]:
    """(path, object) for every dotted path whose library is loaded. A static method is given as its function."""
    found = ((path, resolve(path)) for path in paths)
    return [(path, one.__func__ if isinstance(one, staticmethod) else one) for path, one in found if one is not None]


def resolve(path: str) -> Any | None:
    """The object at a dotted path, or None if its library is not loaded. Neither imports nor triggers lazy loading."""
    if path == ANY_TORCH_FUNCTION:
        return path
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        home = sys.modules.get(".".join(parts[:cut]))
        if home is None:
            continue
        found: Any = home
        for part in parts[cut:]:
            found = inspect.getattr_static(found, part, _MISSING) if found is not _MISSING else found
        return None if found is _MISSING else found
    return None
