"""Finds the modules in which a model's code stands: where `int(size)` and `len(x)` are asked.

from kornia.geometry import rotate       the class's module, and the one that defines rotate
kornia.geometry.transform.rotate(x)      the same, by the names that the class's module has in its code
self.function = rotate                   the same, by the attribute
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from onnxpatch.patching.function_places import CLOSED, library_of


def defining_modules(classes: Iterable[type]) -> Iterator[Any]:
    """The loaded modules that define a model's classes, without torch's."""
    names = {base.__module__ for cls in classes for base in cls.__mro__ if issubclass(base, torch.nn.Module)}
    for name in sorted(names):
        if name in sys.modules and not name.startswith(("torch.", "builtins")):
            yield sys.modules[name]


def code_modules(model: torch.nn.Module, classes: Iterable[type]) -> list[ModuleType]:
    """The modules that define a model's classes, and those with the functions that these use, to the second level."""
    # A table is often resized by a function of another file: `int(size / 2)` there is the model's code too.
    found = {module.__name__: module for module in (*defining_modules(classes), *_held(model))}
    newest = dict(found)
    for _ in range(2):
        helpers = [helper for module in newest.values() for helper in _helpers(module)]
        newest = {helper.__name__: helper for helper in helpers if helper.__name__ not in found}
        found |= newest
    return list(found.values())


def _held(model: torch.nn.Module) -> Iterator[ModuleType]:
    """The modules of functions that the model's modules hold as attributes: `self.function = rotate`."""
    for module in model.modules():
        for value in vars(module).values():
            home = _home_of(value.func if isinstance(value, functools.partial) else value)
            if home is not None and _may_ask(home):
                yield home


def _helpers(module: ModuleType) -> Iterator[ModuleType]:
    """The modules of the functions that `module` has a name for: of its own package, or written with torch."""
    library, values = library_of(module.__name__), list(vars(module).values())
    # By name, once each: a module of transformers has hundreds of functions from a dozen modules.
    named = {home.__name__: home for value in values if (home := _home_of(value)) is not None}
    for value in values:
        if isinstance(value, ModuleType):
            # Of a package alone: what a plain module has of its own stands in it.
            package = hasattr(value, "__path__") and _may_ask(value)
            named |= {home.__name__: home for home in [value, *(_reached(value, module) if package else [])]}
    for home in named.values():
        if _may_ask(home) and (library == library_of(home.__name__) or vars(home).get("torch") is torch):
            yield home


def _may_ask(module: ModuleType) -> bool:
    library = library_of(module.__name__)
    return library not in CLOSED and library != "onnxpatch"


def _home_of(value: object) -> ModuleType | None:
    home = sys.modules.get(value.__module__ or "") if isinstance(value, FunctionType) else None
    return home if isinstance(home, ModuleType) else None


def _reached(package: ModuleType, user: ModuleType) -> Iterator[ModuleType]:
    """The modules of the functions that the code of `user` reaches by way of a package: `package.part.function`."""
    names, seen, waiting = _names_in(user, len(vars(user))), {package.__name__}, [package]
    while waiting:
        here = vars(waiting.pop())
        # vars() and not getattr(), which would start the loading of lazy modules.
        for value in [here[name] for name in names & here.keys()]:
            if isinstance(value, ModuleType) and value.__name__ not in seen and _may_ask(value):
                seen.add(value.__name__)
                waiting.append(value)
            elif (home := _home_of(value)) is not None:
                yield home


@functools.lru_cache(maxsize=1024)
def _names_in(module: ModuleType, size: int) -> frozenset[str]:
    """Every global and attribute that the functions and methods which a module defines have in their code.

    size: how many names the module has, which changes where more is defined in it.
    """
    names: set[str] = set()
    waiting = [code for value in list(vars(module).values()) for code in _codes(value, module.__name__)]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return frozenset(names)


def _codes(value: object, module: str) -> Iterator[CodeType]:
    if getattr(value, "__module__", None) != module:
        return
    for one in vars(value).values() if inspect.isclass(value) else [value]:
        function = getattr(one, "__func__", one)  # of a staticmethod or a classmethod
        if isinstance(function, types.FunctionType):
            yield function.__code__
