"""Finds the names by which loaded modules refer to a function: `from einops import rearrange` makes a second one."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

Place = tuple[Any, str]  # (module or class, name in it)
Places = dict[int, list[Place]]  # by the id of the function

# Libraries that hold no function but their own and each other's, or call none on behalf of a model: four fifths of the
# modules of a process.
CLOSED = frozenset({
    *sys.stdlib_module_names, "torch", "numpy", "sympy", "mpmath", "networkx", "scipy", "PIL", "jinja2", "yaml",
    "google", "huggingface_hub", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "onnxpatch",
}) - {"__main__"}  # fmt: skip
_AT_ONCE = 32
_MOST_KEPT = 16

# What was found in the closed libraries, by the ids of the functions and the number of modules: a thousand modules of
# torch are searched once in a process, not in every export.
_kept: dict[tuple[frozenset[int], int], list[Place]] = {}


def find_in_modules(wanted: Places, libraries: set[str], keep: bool) -> None:
    """Add to `wanted` all places in loaded modules that refer to its functions now.

    libraries: those that define the functions. keep: whether every function stands in all of its places now, so that
    what is found in closed libraries may be remembered.
    """
    own: list[types.ModuleType] = []
    users: list[types.ModuleType] = []
    # Copies of both dicts: an import in another thread may change them meanwhile. vars() and not getattr(), which would
    # start the loading of lazy modules.
    for path, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and module is not builtins:
            library = library_of(path)
            if library not in CLOSED:
                users.append(module)
            elif library in libraries:
                own.append(module)
    key = (frozenset(wanted), len(own))
    places = _kept.get(key)
    if places is None:
        places = _places(own, wanted.keys())
        if keep and len(_kept) < _MOST_KEPT:
            _kept[key] = places
    for module, name in (*places, *_places(users, wanted.keys())):
        function = vars(module).get(name)  # what was remembered may have been replaced since
        if id(function) in wanted:
            wanted[id(function)].append((module, name))


@functools.lru_cache(maxsize=1 << 16)  # asked for every loaded module, in every export
def library_of(path: str | None) -> str:
    """The first name of a dotted path."""
    return (path or "").partition(".")[0]


def _places(modules: Sequence[types.ModuleType], wanted: Iterable[int]) -> list[Place]:
    """The names in some modules that refer to one of the wanted functions."""
    ids, found = frozenset(wanted), []
    for start in range(0, len(modules), _AT_ONCE):
        group = modules[start : start + _AT_ONCE]
        if _hold_none(group, ids):
            continue
        for module in group:
            if _hold_none((module,), ids):
                continue
            found += [(module, name) for name, value in list(vars(module).items()) if id(value) in ids]
    return found


def _hold_none(modules: Iterable[types.ModuleType], wanted: frozenset[int]) -> bool:
    """Whether no value is among those wanted, asked without a loop in Python: there are some thousand modules."""
    try:
        return wanted.isdisjoint(map(id, chain.from_iterable(vars(module).values() for module in modules)))
    except RuntimeError:  # another thread imports something there
        return False
