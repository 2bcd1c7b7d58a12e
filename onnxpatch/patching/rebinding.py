"""Replaces functions that no TorchFunctionMode sees, in every loaded module that has a name for them.

A TorchFunctionMode sees torch.add, but neither einops.rearrange nor `int`. After `from einops import rearrange` there
are two names for one function:

    einops.rearrange            <- substitute
    user_model.rearrange        <- substitute

So all loaded modules are searched for the function object, and each name that refers to it is set to a substitute while
the model runs. The substitute asks for a patch in this thread; in another thread it calls the original. Builtins such
as `int` and `len` get a name in the modules in which the model's code stands (`code_places.py`).

Two models may run at once, in two threads or one inside the other. A place is set back when the last of them leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch._torch.symbolic_sizes import traced_from_sizes
from onnxpatch.patching.code_places import Place, Places, code_modules, defining_modules, find_in_modules, mention
from onnxpatch.patching.when import resolve
from onnxpatch.process import process_lock, release, undone

# Answers a call in this thread, given (function, args, kwargs); NotImplemented lets the original run.
Lookup = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

# Of all models and threads: what each exchanged place had before. Empty while no patched model runs.
_standing: dict[Place, _Replaced] = {}
_lock = process_lock()
_numbers = itertools.count()
_MISSING = object()
# What lru_cache adds to a function, and functions of NumPy have.
_WITH_FUNCTIONS = ("cache_clear", "cache_info", "cache_parameters", "accumulate", "at", "outer", "reduce", "reduceat")
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MAY_BE_BASE = 1 << 10  # Py_TPFLAGS_BASETYPE


@dataclass
class _Replaced:
    """The original of one place, and the installations that need the substitute there."""

    before: Any
    holders: set[int] = field(default_factory=set)


class Substitution:
    """The substitute of one function and the places it is set in while a model runs."""

    def __init__(self, original: Any, places: Iterable[Place], lookup: Lookup) -> None:
        self.original = original
        self.places = list(places)
        self.substitute = _substitute_type(original, lookup) if isinstance(original, type) else _wrap(original, lookup)

    def install(self, holder: int) -> None:
        """Set the substitute in every place, for `holder`. A place that another holder has set already is kept."""
        with _lock:
            for place in self.places:
                home, name = place
                now = vars(home).get(name, _MISSING)
                # Noted before the place is changed: after an interrupt here, `remove` still finds it.
                replaced = _standing.setdefault(place, _Replaced(now))
                replaced.holders.add(holder)
                # Not if another holder has set its substitute already: that one serves both. A staticmethod must stay
                # one, or the class would bind its first argument; a classmethod, so that the class is bound to it.
                if now is replaced.before:
                    bound = isinstance(now, staticmethod | classmethod)
                    _set(home, name, type(now)(self.substitute) if bound else self.substitute)

    def remove(self, holder: int) -> None:
        """Set the original back in the places that no other holder needs. May be called again after an interrupt."""
        with _lock:
            for place in self.places:
                replaced = _standing.get(place)
                if replaced is None:
                    continue
                replaced.holders.discard(holder)
                if replaced.holders:
                    continue
                _set_back(*place, replaced.before)
                del _standing[place]


@contextlib.contextmanager
def installed(substitutions: Sequence[Substitution]) -> Iterator[None]:
    """Inside the block, the substitutes are in their places.

    A KeyboardInterrupt may come at any line, also at those that put the originals back: then they are put back again.
    """
    holder = next(_numbers)

    def remove() -> None:
        for substitution in substitutions:
            substitution.remove(holder)
        release(_lock)

    with undone(remove):
        for substitution in substitutions:
            substitution.install(holder)
        yield


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """Inside the block, every place has its original: for torch.jit.script, which compiles what names refer to."""
    with _lock:
        # A function that is compiled may have another one compiled: there the names are as written already.
        substitutes = [(place, vars(place[0])[place[1]]) for place in _standing if place[1] in vars(place[0])]
        try:
            for (home, name), _ in substitutes:
                _set_back(home, name, _standing[home, name].before)
            yield
        finally:
            for (home, name), substitute in substitutes:
                _set(home, name, substitute)


def _set_back(home: Any, name: str, before: object) -> None:
    # MISSING: the place had no such name, as a module in which a builtin was shadowed.
    if before is not _MISSING:
        _set(home, name, before)
    elif name in vars(home):
        delattr(home, name)


def _set(home: object, name: str, value: object) -> None:
    if inspect.ismodule(home):
        vars(home)[name] = value  # not setattr: the module classes of lazy loaders override it
    elif isinstance(home, type) and not home.__flags__ & _MADE_IN_PYTHON:
        # A class in C, such as torch.Size, refuses setattr. vars() gives a view, which refers to its dict alone.
        gc.get_referents(vars(home))[0][name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(home))  # or calls go on to what Python has looked up before
    else:
        setattr(home, name, value)


def substitutions(
    model: torch.nn.Module, originals: list[tuple[str, Any]], classes: Iterable[type], lookup: Lookup
) -> list[Substitution]:
    """The substitution of each (dotted path, function), with the places that refer to the function now."""
    users = code_modules(model, classes)
    # NumPy has more of them than all others, which nothing calls where the model's code has no name of NumPy.
    arrays = [(path, original) for path, original in originals if path.startswith("numpy.")]
    if not mention("numpy", (original for _, original in arrays), users):
        originals = [one for one in originals if one not in arrays]
    wanted: Places = {id(original): [] for _, original in originals}
    # The search through all modules takes milliseconds, and builtins have their places in the model's modules alone.
    searched = [original for path, original in originals if not path.startswith("builtins.")]
    if searched:
        wanted |= find_in_modules(searched, keep=not _standing)
    for path, original in originals:
        home, _, name = path.rpartition(".")
        if home == "builtins":
            wanted[id(original)] = [(module, name) for module in users]
        elif isinstance(owner := _owner(home), type):
            wanted[id(original)].append((owner, name))
    return [Substitution(original, wanted[id(original)], lookup) for _, original in originals if wanted[id(original)]]


def memoised(classes: Iterable[type]) -> Iterator[tuple[str, Any]]:
    """(dotted path, function) of every function with `functools.lru_cache` in the modules that define `classes`."""
    kind = type(functools.lru_cache(_owner))  # private in functools
    for module in defining_modules(classes):
        homes = [module, *filter(inspect.isclass, list(vars(module).values()))]  # another thread may add names
        for home in homes:
            path = module.__name__ if home is module else f"{home.__module__}.{home.__qualname__}"
            for name, value in vars(home).copy().items():
                value = value.__func__ if isinstance(value, staticmethod) else value
                if isinstance(value, kind):
                    yield f"{path}.{name}", value


def _owner(path: str) -> Any:
    return resolve(path) if "." in path else None


def _wrap(original: Callable[..., object], lookup: Lookup) -> Callable[..., Any]:
    unbound = getattr(original, "__func__", original)
    owner = getattr(original, "__self__", None)

    @functools.wraps(original)
    def substitute(*args: object, **kwargs: object) -> object:
        found = lookup(original, args, kwargs)
        if found is not NotImplemented:
            return found
        # In its class, a classmethod gets that class or a subclass; by a name of its own (`f = A.apply`) it has one.
        named = isinstance(owner, type) and not (args and isinstance(args[0], type) and issubclass(args[0], owner))
        return (original if named else unbound)(*args, **kwargs)

    for name in _WITH_FUNCTIONS:
        if hasattr(original, name):
            setattr(substitute, name, getattr(original, name))
    return substitute


def _is_size(value: object) -> bool:
    """Whether a value is an int in eager, and a 0-d tensor only because torch.jit.trace runs."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.dim():
        return False
    return traced_from_sizes(value)


def passing_for(original: type) -> type:
    """A metaclass whose classes pass for `original` in isinstance, issubclass and ==, and as keys of dicts."""

    class PassingFor(type):
        # What isinstance is asked about was made by torch or Python, and is no instance of the new class.
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

        # A dict may have the original as a key: `{torch.LongTensor: 0}[torch.LongTensor]`.
        def __eq__(cls, other: object) -> bool:
            return other is cls or other is original

        def __hash__(cls) -> int:
            return hash(original)

    return PassingFor


def _substitute_type(original: type, lookup: Lookup) -> type:
    """A substitute for a type, such as `int`."""
    # An export inside of a forward, or in a process forked from one, finds another export's substitute.
    written: type = vars(original).get("__wrapped__", original)

    class Substitute(passing_for(written)):  # type: ignore[misc]
        def __call__(cls, *args: object, **kwargs: object) -> Any:
            found = lookup(original, args, kwargs)
            return original(*args, **kwargs) if found is NotImplemented else found

        def __getattribute__(cls, name: str) -> Any:
            # int.from_bytes is taken from the original: inherited, it would pass its result to __call__.
            return type.__getattribute__(cls if name.startswith("__") else written, name)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, written) or (written is int and _is_size(instance))

    # A subclass where possible, so that `class Size(int)` in the user's module still works. range allows none.
    bases = (written,) if written.__flags__ & _MAY_BE_BASE else ()
    return Substitute(written.__name__, bases, {"__module__": written.__module__, "__wrapped__": written})
