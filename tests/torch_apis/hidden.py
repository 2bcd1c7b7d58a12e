"""Hides a private torch API from the kit alone: torch itself, which could do nothing without it, goes on seeing it."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

OWN = "/onnxpatch/_torch/"


def _asked_by_the_kit(depth: int) -> bool:
    return OWN in sys._getframe(depth).f_code.co_filename.replace("\\", "/")


class _Hidden:
    """A class attribute that is not there for the kit. It holds what was there, if anything, for the others."""

    def __init__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name
        self._was = owner.__dict__.get(name)

    def __get__(self, one: Any, owner: type | None = None) -> Any:
        if _asked_by_the_kit(2):
            raise AttributeError(f"{self._owner.__name__} has no attribute {self._name}")
        if one is not None and self._name in vars(one):
            return vars(one)[self._name]
        if self._was is None:
            raise AttributeError(self._name)
        return self._was.__get__(one, owner) if hasattr(self._was, "__get__") else self._was

    def __set__(self, one: Any, value: Any) -> None:
        vars(one)[self._name] = value


@contextlib.contextmanager
def hidden(path: str) -> Iterator[None]:
    """Inside the block the kit finds nothing under a dotted path of `RELIED_ON`."""
    first, *outer, name = path.split(".")
    owner: Any = importlib.import_module(first)
    for at, part in enumerate(outer, 1):
        bare = part.removesuffix("()")
        if not hasattr(owner, bare):
            importlib.import_module(".".join([first, *outer[:at]]))
        owner = getattr(owner, bare)
    with _from_module(owner, name) if isinstance(owner, types.ModuleType) else _from_class(owner, name):
        yield


@contextlib.contextmanager
def _from_module(owner: types.ModuleType, name: str) -> Iterator[None]:
    was, path = type(owner), f"{owner.__name__}.{name}"
    import_module = importlib.import_module

    class Lacking(was):  # type: ignore[misc, valid-type]
        def __getattribute__(self, asked: str) -> Any:
            if asked in (name, "__name__") and _asked_by_the_kit(2):
                if asked == "__name__":  # where `from a import b` goes on to look for a module b
                    return "torch.gone"
                raise AttributeError(f"module {path!r} is hidden")
            return super().__getattribute__(asked)

        def __getattr__(self, asked: str) -> Any:  # of modules that hold settings; a module's own is in its namespace
            if hasattr(was, "__getattr__") and not (asked == name and _asked_by_the_kit(2)):
                return was.__getattr__(self, asked)
            raise AttributeError(f"module {owner.__name__!r} has no attribute {asked!r}")

    def lacking(asked: str, package: str | None = None) -> types.ModuleType:
        if asked == path and _asked_by_the_kit(2):
            raise ImportError(f"module {path!r} is hidden")
        return import_module(asked, package)

    # Past the __setattr__ of modules that hold settings.
    object.__setattr__(owner, "__class__", Lacking)
    importlib.import_module = lacking
    try:
        yield
    finally:
        importlib.import_module = import_module
        object.__setattr__(owner, "__class__", was)


@contextlib.contextmanager
def _from_class(owner: type, name: str) -> Iterator[None]:
    there, was = name in owner.__dict__, owner.__dict__.get(name)
    setattr(owner, name, _Hidden(owner, name))
    try:
        yield
    finally:
        if there:
            setattr(owner, name, was)
        else:
            delattr(owner, name)
