"""Finds the code of a model's own forwards, and of the functions that they call by name."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType

import torch

_NOT_OWN = ("torch", "builtins", "abc", "math", "numpy")


def own_code(model: torch.nn.Module) -> Iterator[CodeType]:
    """The code of the user's forwards, of methods and functions that they name, and of functions kept in attributes.

    One level deep: helpers that a forward calls by name, such as `self.interpolate(...)`, have the comparisons too.
    """
    forwards = [(cls, vars(cls).get("forward")) for cls in own_classes(model)]
    for cls, forward in forwards:
        for name in ("forward", *forward.__code__.co_names) if isinstance(forward, FunctionType) else ():
            method = vars(cls).get(name)
            if isinstance(method, FunctionType):
                yield method.__code__
    kept = (value for module in model.modules() for value in vars(module).values())
    held = list(dict.fromkeys(value for value in kept if isinstance(value, FunctionType) and is_own(value.__module__)))
    yield from (function.__code__ for function in held)
    called = [function for _, function in forwards if isinstance(function, FunctionType)]
    yield from dict.fromkeys(helper.__code__ for function in (*called, *held) for helper in _helpers(function))


def _helpers(function: FunctionType) -> Iterator[FunctionType]:
    """The functions among the globals that it names."""
    for name in function.__code__.co_names:
        helper = function.__globals__.get(name)
        if isinstance(helper, FunctionType) and is_own(helper.__module__):
            yield helper


def own_classes(model: torch.nn.Module) -> list[type]:
    """The classes of its modules that are not torch's, with their bases."""
    classes = dict.fromkeys(cls for module in model.modules() for cls in type(module).__mro__)
    return [c for c in classes if is_own(c.__module__)]


def is_own(module: str | None) -> bool:
    """Whether a module of this name is the user's, and none of torch's or Python's."""
    return (module or "").split(".")[0] not in _NOT_OWN
