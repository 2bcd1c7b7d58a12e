"""Which functions a model's own code names: of all function patches, those are the ones that are likely to act.

    def forward(self, x):
        return F.interpolate(x, scale_factor=2)      interpolate, scale_factor is no function, x no name

Read from the compiled code of the methods, and of functions of the same package that these name; nothing is run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType

import torch

from onnxpatch.patching.function_places import library_of

_MOST = 2000  # functions that are read


def likely_of(targets: Mapping[str, Sequence[str]], classes: Iterable[type]) -> dict[str, tuple[str, str]]:
    """Those of the patches whose function the code of a model's classes names: patch -> (function, where).

    targets: of each patch, dotted paths. What Python asks sizes by operators, such as `if` and `//`, has no name.
    """
    named, found = _named(classes), {}
    for patch, paths in targets.items():
        called = next((name for path in paths if (name := path.rpartition(".")[2]) in named), "")
        if called:
            found[patch] = (called, named[called])
    return found


def _named(classes: Iterable[type]) -> dict[str, str]:
    """name -> the first class or function whose code has it."""
    found: dict[str, str] = {}
    waiting = [(function, cls.__name__) for cls in classes for function in _methods(cls)]
    seen = {function for function, _ in waiting}
    # The list grows while it is gone through: what a function calls comes behind it.
    for function, owner in waiting:
        home = library_of(function.__module__ or "")
        for name in _names(function.__code__):
            found.setdefault(name, owner)
            called = inspect.unwrap(one) if callable(one := function.__globals__.get(name)) else None
            if not isinstance(called, FunctionType) or called in seen or len(seen) > _MOST:
                continue
            if library_of(called.__module__ or "") == home != "torch":
                seen.add(called)
                waiting.append((called, called.__qualname__))
    return found


def _methods(cls: type) -> Iterator[FunctionType]:
    """The methods of a class and its bases, without torch.nn.Module's own machinery."""
    for base in cls.__mro__:
        if base in (object, torch.nn.Module, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict):
            continue
        # `forward` of torch's own layers calls what is patched; the rest of them sets them up.
        own = {"forward": vars(base).get("forward")} if base.__module__.startswith("torch.") else vars(base)
        for name, value in own.items():
            function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
            if isinstance(function, FunctionType) and name not in ("__init__", "extra_repr", "__repr__"):
                yield function


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a comprehension or an inner function
            yield from _names(constant)
