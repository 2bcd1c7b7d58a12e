"""Replacing functions that no TorchFunctionMode sees, wherever loaded modules hold them, behind a thread check.

`from einops import rearrange` leaves a name in the user's module, so a function is replaced by identity in the
namespaces of all loaded modules. Other threads that run into the substitute get the original.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch._torch.symbolic_sizes import traced_from_sizes
from onnxpatch.patching.dotted_paths import resolve

# What stands for a call of a function in this thread, given (function, args, kwargs); or NotImplemented.
Lookup = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
Place = tuple[Any, str]  # a module or class, and the name under which it holds the function

_standing: dict[Place, _Replaced] = {}
# Reentrant, so that a thread that an interrupt left with the lock can still put things back.
_lock = threading.RLock()
_numbers = itertools.count()
_MISSING = object()
_MAY_BE_BASE = 1 << 10  # Py_TPFLAGS_BASETYPE


@dataclass
class _Replaced:
    """What a place held before, and the installations that need the substitute there."""

    before: Any
    holders: set[int] = field(default_factory=set)


class Substitution:
    """One function's substitute and the places it goes to; installed while a scope runs."""

    def __init__(self, original: Any, places: Iterable[Place], lookup: Lookup) -> None:
        self.original = original
        self.places = list(places)
        self.substitute = _substitute_type(original, lookup) if isinstance(original, type) else _wrap(original, lookup)

    def install(self, holder: int) -> None:
        """Put the substitute in every place, for `holder`; where another holder's stands already, that one serves."""
        with _lock:
            for place in self.places:
                home, name = place
                now = vars(home).get(name, _MISSING)
                # Noted before anything is replaced, so that whatever interrupts this, `remove` finds it.
                replaced = _standing.setdefault(place, _Replaced(now))
                replaced.holders.add(holder)
                if now is replaced.before:
                    static = isinstance(now, staticmethod)
                    _set(home, name, staticmethod(self.substitute) if static else self.substitute)

    def remove(self, holder: int) -> None:
        """Put the original back in the places that no other holder needs. May be called again, and after a part of it
        was done."""
        with _lock:
            for place in self.places:
                replaced = _standing.get(place)
                if replaced is None:
                    continue
                replaced.holders.discard(holder)
                if replaced.holders:
                    continue
                home, name = place
                if replaced.before is not _MISSING:
                    _set(home, name, replaced.before)
                elif name in vars(home):
                    delattr(home, name)
                del _standing[place]


@contextlib.contextmanager
def installed(substitutions: Sequence[Substitution]) -> Iterator[None]:
    """The substitutes are in their places inside the block.

    A KeyboardInterrupt may come at any line, also at those that put the originals back. So they are put back twice, by
    two contexts, one around the other: an interrupt that stops one leaves through the other.
    """
    holder = next(_numbers)
    with _removing(substitutions, holder), _removing(substitutions, holder):
        for substitution in substitutions:
            substitution.install(holder)
        yield


@contextlib.contextmanager
def _removing(substitutions: Sequence[Substitution], holder: int) -> Iterator[None]:
    try:
        yield
    finally:
        for substitution in substitutions:
            substitution.remove(holder)
        _release_lock()


def _release_lock() -> None:
    """Release what an interrupt between the last line of a `with _lock` and its end left acquired."""
    with contextlib.suppress(RuntimeError):  # raised where this thread does not hold it
        while True:
            _lock.release()


def _set(home: Any, name: str, value: Any) -> None:
    if inspect.ismodule(home):
        vars(home)[name] = value  # past a module class's own __setattr__ (lazy loaders)
    else:
        setattr(home, name, value)


def substitutions(
    model: torch.nn.Module, originals: list[tuple[str, Any]], classes: Iterable[type], lookup: Lookup
) -> list[Substitution]:
    """Where each (dotted path, function) is held now; builtins only in the modules that define the model's classes."""
    wanted: dict[int, list[Place]] = {id(original): [] for _, original in originals}
    if any(vars(builtins).get(getattr(original, "__name__", "")) is not original for _, original in originals):
        _find_in_modules(wanted)
    for path, original in originals:
        home, _, name = path.rpartition(".")
        if home == "builtins":
            wanted[id(original)] = [(module, name) for module in defining_modules(classes)]
        elif isinstance(owner := _owner(home), type):
            wanted[id(original)].append((owner, name))
    return [Substitution(original, wanted[id(original)], lookup) for _, original in originals if wanted[id(original)]]


def memoised(classes: Iterable[type]) -> Iterator[tuple[str, Any]]:
    """(dotted path, function) of what `functools.lru_cache` was put on in the modules that define `classes`."""
    kind = type(functools.lru_cache(_owner))  # private in functools
    for module in defining_modules(classes):
        homes = [module, *(value for value in vars(module).values() if inspect.isclass(value))]
        for home in homes:
            path = module.__name__ if home is module else f"{home.__module__}.{home.__qualname__}"
            for name, value in list(vars(home).items()):
                value = value.__func__ if isinstance(value, staticmethod) else value
                if isinstance(value, kind):
                    yield f"{path}.{name}", value


def _owner(path: str) -> Any:
    return resolve(path) if "." in path else None


def _find_in_modules(wanted: dict[int, list[Place]]) -> None:
    for module in list(sys.modules.values()):
        if not inspect.ismodule(module) or module is builtins:
            continue
        for name, value in list(vars(module).items()):
            if id(value) in wanted:
                wanted[id(value)].append((module, name))


def defining_modules(classes: Iterable[type]) -> Iterator[Any]:
    """The loaded modules that define a model's classes, torch's own left out."""
    names = {base.__module__ for cls in classes for base in cls.__mro__ if issubclass(base, torch.nn.Module)}
    for name in sorted(names):
        if name in sys.modules and not name.startswith(("torch.", "builtins")):
            yield sys.modules[name]


def _wrap(original: Callable[..., Any], lookup: Lookup) -> Callable[..., Any]:
    @functools.wraps(original)
    def substitute(*args: Any, **kwargs: Any) -> Any:
        found = lookup(original, args, kwargs)
        return original(*args, **kwargs) if found is NotImplemented else found

    for name in ("cache_clear", "cache_info", "cache_parameters"):  # what lru_cache gives a function
        if hasattr(original, name):
            setattr(substitute, name, getattr(original, name))
    return substitute


def _is_size(value: object) -> bool:
    """Whether a value is an int in eager, and a 0-d tensor only because torch.jit.trace runs."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.dim():
        return False
    return traced_from_sizes(value)


def _substitute_type(original: type, lookup: Lookup) -> type:
    """`int` and `float` are types too: the substitute must still answer isinstance, issubclass and ==."""

    class Substitute(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            found = lookup(original, args, kwargs)
            return original(*args, **kwargs) if found is NotImplemented else found

        def __getattribute__(cls, name: str) -> Any:
            # int.from_bytes and the like belong to the original; a subclass would hand its results to __call__.
            return type.__getattribute__(cls if name.startswith("__") else original, name)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original) or (original is int and _is_size(instance))

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is original

        def __hash__(cls) -> int:
            return hash(original)

    bases = (original,) if original.__flags__ & _MAY_BE_BASE else ()  # range may not
    return Substitute(original.__name__, bases, {"__module__": original.__module__})
