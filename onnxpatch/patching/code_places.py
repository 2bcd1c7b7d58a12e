"""Finds where loaded modules refer to a function, and in which modules a model's code stands.

from einops import rearrange            a second name for one function: `find_in_modules` has both

The modules of a model's code, where `int(size)` and `len(x)` are asked, are those of its classes, and of the functions
that these use:

from kornia.geometry import rotate      the class's module, and the one that defines rotate
kornia.geometry.transform.rotate(x)     the same, by the names that the class's module has in its code
self.function = rotate                  the same, by the attribute
Model.forward = forward                 the function's own module
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from onnxpatch.messages.user_code import code_within, names_within

Place = tuple[Any, str]  # (module or class, name in it)
Places = dict[int, list[Place]]  # by the id of the function
# Libraries that hold no function but their own and each other's, or call none on behalf of a model: four fifths of the
# modules of a process.
CLOSED = frozenset({
    *sys.stdlib_module_names, "torch", "numpy", "sympy", "opt_einsum", "mpmath", "networkx", "scipy", "PIL", "jinja2",
    "yaml", "google", "huggingface_hub", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "onnxpatch",
}) - {"__main__"}  # fmt: skip
_AT_ONCE = 32
_MOST_KEPT = 16
_MOST = 2000  # functions that are read
# What was found in the closed libraries, by the ids of the functions and the number of modules: a thousand modules of
# torch are searched once in a process, not in every export.
_kept: dict[tuple[frozenset[int], int], list[Place]] = {}


def find_in_modules(functions: Sequence[Any], keep: bool) -> Places:
    """All places in loaded modules that refer to the functions now.

    keep: whether every function stands in all of its places now, so that what is found in closed libraries may be
    remembered.
    """
    wanted: Places = {id(function): [] for function in functions}
    libraries = {library_of(getattr(function, "__module__", None)) for function in functions}
    own: list[ModuleType] = []
    users: list[ModuleType] = []
    # Copies of both dicts: an import in another thread may change them meanwhile. copy() and not list(items()), whose
    # tuples can start a garbage collection, which lets other threads run. vars() and not getattr(), which would start
    # the loading of lazy modules.
    for path, module in sys.modules.copy().items():
        if isinstance(module, ModuleType) and module is not builtins:
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
    return wanted


@functools.lru_cache(maxsize=1 << 16)  # asked for every loaded module, in every export
def library_of(path: str | None) -> str:
    """The first name of a dotted path."""
    return (path or "").partition(".")[0]


def _places(modules: Sequence[ModuleType], wanted: Iterable[int]) -> list[Place]:
    """The names in some modules that refer to one of the wanted functions."""
    ids, found = frozenset(wanted), []
    for start in range(0, len(modules), _AT_ONCE):
        group = modules[start : start + _AT_ONCE]
        if _hold_none(group, ids):
            continue
        for module in group:
            if _hold_none((module,), ids):
                continue
            found += [(module, name) for name, value in vars(module).copy().items() if id(value) in ids]
    return found


def _hold_none(modules: Iterable[ModuleType], wanted: frozenset[int]) -> bool:
    """Whether no value is among those wanted, asked without a loop in Python: there are some thousand modules."""
    try:
        return wanted.isdisjoint(map(id, chain.from_iterable(vars(module).values() for module in modules)))
    except RuntimeError:  # another thread imports something there
        return False


def defining_modules(classes: Iterable[type]) -> Iterator[Any]:
    """The loaded modules that define a model's classes, without torch's."""
    names = {base.__module__ for cls in classes for base in cls.__mro__ if issubclass(base, torch.nn.Module)}
    for name in sorted(names):
        if name in sys.modules and not name.startswith(("torch.", "builtins")):
            yield sys.modules[name]


def code_modules(model: torch.nn.Module, classes: Iterable[type]) -> list[ModuleType]:
    """The modules that define a model's classes, and those with the functions that these use, to the second level."""
    # A table is often resized by a function of another file: `int(size / 2)` there is the model's code too.
    classes = list(classes)
    enclosed = [value for cls in classes for value in _enclosed(cls)]
    functions = list(_functions([*_held(model), *enclosed]))
    homes = [sys.modules[function.__module__] for function in functions]
    found = {module.__name__: module for module in (*defining_modules(classes), *homes)}
    # Those of a lambda, too, which no name of its module stands for.
    called = frozenset(name for function in functions for name in names_within(function.__code__))
    found |= {home.__name__: home for home in _by_way_of(enclosed, list(defining_modules(classes)), called)}
    newest = dict(found)
    for _ in range(2):
        helpers = [helper for module in newest.values() for helper in _helpers(module, called)]
        newest = {helper.__name__: helper for helper in helpers if helper.__name__ not in found}
        found |= newest
    return list(found.values())


def _held(model: torch.nn.Module) -> Iterator[object]:
    """What the model's modules hold as attributes: `self.function = rotate`."""
    for module in model.modules():
        yield from list(vars(module).values())  # another thread may import


def _enclosed(cls: type) -> Iterator[object]:
    """What the methods of a class made inside of a function read from there: `return loss(x, y)`; and its methods that
    stand in another module: `Model.forward = forward`."""
    own = [(base.__module__, method) for base in cls.__mro__ for method in list(vars(base).values())]
    for home, method in own:
        if isinstance(method, FunctionType) and method.__module__ != home:
            yield method
        for cell in (isinstance(method, FunctionType) and method.__closure__) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                yield cell.cell_contents


def _functions(values: Iterable[object]) -> Iterator[FunctionType]:
    """The functions among values that may be asked about."""
    for value in values:
        function = value.func if isinstance(value, functools.partial) else value
        function = function.__func__ if isinstance(function, MethodType) else function
        home = _home_of(function)
        if isinstance(function, FunctionType) and home is not None and _may_ask(home):
            yield function


def _by_way_of(values: Iterable[object], users: list[Any], called: frozenset[str]) -> Iterator[ModuleType]:
    """The modules of the functions that the code of `users` reaches by way of packages among values."""
    for package in values:
        if isinstance(package, ModuleType) and _may_ask(package):
            for user in users:
                yield from filter(_may_ask, _reached(package, user, called))


def _helpers(module: ModuleType, called: frozenset[str]) -> Iterator[ModuleType]:
    """The modules of the functions that `module` has a name for: of its own package, or written with torch."""
    library, values = library_of(module.__name__), list(vars(module).values())
    # By name, once each: a module of transformers has hundreds of functions from a dozen modules.
    named = {home.__name__: home for value in values if (home := _home_of(value)) is not None}
    for value in values:
        if isinstance(value, ModuleType):
            # Of a package alone: what a plain module has of its own stands in it.
            package = "__path__" in vars(value) and _may_ask(value)  # hasattr() would load a lazy module
            named |= {home.__name__: home for home in [value, *(_reached(value, module, called) if package else [])]}
    for home in named.values():
        if _may_ask(home) and (library == library_of(home.__name__) or vars(home).get("torch") is torch):
            yield home


def _may_ask(module: ModuleType) -> bool:
    library = library_of(module.__name__)
    return library not in CLOSED and library != "onnxpatch"


def _home_of(value: object) -> ModuleType | None:
    home = sys.modules.get(value.__module__ or "") if isinstance(value, FunctionType) else None
    return home if isinstance(home, ModuleType) else None


def _reached(package: ModuleType, user: ModuleType, called: frozenset[str]) -> Iterator[ModuleType]:
    """The modules of the functions that the code of `user` reaches by way of a package: `package.part.function`."""
    names, seen, waiting = called | _names_in(user, len(vars(user))), {package.__name__}, [package]
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
    return frozenset(name for code in _defined_code(module) for name in names_within(code))


def mention(library: str, functions: Iterable[Any], modules: Sequence[ModuleType]) -> bool:
    """Whether modules, or others of their packages, have a name for a library, a part of it or one of its functions, or
    a function there imports it."""
    packages = {library_of(module.__name__) for module in modules}
    loaded = [(library_of(path), one) for path, one in sys.modules.copy().items() if packages]
    own = [*modules, *(one for package, one in loaded if package in packages and isinstance(one, ModuleType))]
    wanted = frozenset(map(id, (*functions, *(one for package, one in loaded if package == library))))
    return not _hold_none(own, wanted) or any(library in _names_in(one, len(vars(one))) for one in modules)


def ask_for_types(modules: Iterable[ModuleType]) -> bool:
    """Whether code of these modules calls `type`."""
    return any(_asks(code) for module in modules for code in _defined_code(module))


def _defined_code(module: ModuleType) -> Iterator[CodeType]:
    """The code objects of the functions and methods that are defined in the module."""
    for value in list(vars(module).values()):
        # `type` is replaced in these modules only: imported code looks the name up elsewhere.
        if getattr(value, "__module__", None) == module.__name__:
            for one in vars(value).copy().values() if inspect.isclass(value) else (value,):
                function = getattr(one, "__func__", one)  # of a staticmethod or a classmethod
                function = inspect.unwrap(function) if callable(function) else None
                if isinstance(function, FunctionType):
                    yield function.__code__


# By code object, which never changes: the same modules are asked again for every model that they define.
@functools.lru_cache(maxsize=4096)
def _asks(code: CodeType) -> bool:
    naming = (one for one in code_within(code) if "type" in one.co_names)
    # `x.type(torch.int64)` has the name in co_names too; only the instruction shows that it is an attribute.
    steps = (step for one in naming for step in dis.get_instructions(one))
    return any(step.argval == "type" and step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in steps)


# ------------------------------------------------------------------ what code names
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
        for name in names_within(function.__code__):
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
