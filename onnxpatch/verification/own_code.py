"""Finds the code of a model's own forwards, and of the functions that they call by name."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TypeGuard

import torch

_NOT_OWN = ("torch", "builtins", "abc", "math", "numpy")


def own_code(model: torch.nn.Module) -> Iterator[CodeType]:
    """The code of the user's forwards, of methods and functions that they name, and of functions kept in attributes.

    One level deep: helpers that a forward calls by name, such as `self.interpolate(...)`, have the comparisons too.
    """
    forwards = [(cls, vars(cls)["forward"]) for cls in own_classes(model) if "forward" in vars(cls)]
    called = [(cls, forward) for cls, forward in forwards if isinstance(forward, FunctionType)]
    for cls, forward in called:
        methods = (vars(cls).get(name) for name in ("forward", *forward.__code__.co_names))
        yield from (method.__code__ for method in methods if isinstance(method, FunctionType))
    kept = (value for module in model.modules() for value in vars(module).values())
    held = list(dict.fromkeys(filter(_is_own_function, kept)))
    yield from (function.__code__ for function in held)
    functions = (*(forward for _, forward in called), *held)
    yield from dict.fromkeys(helper.__code__ for function in functions for helper in _helpers(function))


def _helpers(function: FunctionType) -> Iterator[FunctionType]:
    """The functions among the globals that it names."""
    return filter(_is_own_function, map(function.__globals__.get, function.__code__.co_names))


def _is_own_function(value: object) -> TypeGuard[FunctionType]:
    return isinstance(value, FunctionType) and is_own(value.__module__)


def own_classes(model: torch.nn.Module) -> list[type]:
    """The classes of its modules that are not torch's, with their bases."""
    classes = dict.fromkeys(cls for module in model.modules() for cls in type(module).__mro__)
    return [c for c in classes if is_own(c.__module__)]


def is_own(module: str | None) -> bool:
    """Whether a module of this name is the user's, and none of torch's or Python's."""
    return (module or "").split(".")[0] not in _NOT_OWN
