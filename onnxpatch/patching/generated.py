"""Generates subclasses with mixins in front of a module's class, and takes mixins out again.

    type(layer)                        Linear           written by torch
    specialise(Linear, StandIn)        Linear           generated: (_Quiet, StandIn, Linear)
    layer.__class__ = that             the same object, its weights, hooks and aliases; StandIn's methods come first

A generated class remembers its written class and its layers, one for each `patched`. So nested contexts can be left in
any order, and copies and pickles of a patched module work.

`layer.__class__ is nn.Linear` stays true by a descriptor, and `type(layer) is nn.Linear` by a replacement of the name
`type` in the Python modules that define such a model, while it runs, in eager too.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from onnxpatch._torch.module_marks import PROXY_MAKER

_GENERATED = "__onnxpatch_generated__"
MISSING = object()
"""In an undo log: the key did not exist."""


@dataclass(frozen=True)
class Generated:
    """How a generated class was made. base: the written class. layers: (owner, mixins), oldest first."""

    base: type
    layers: tuple[tuple[object, tuple[type, ...]], ...]


def generated(cls: type) -> Generated | None:
    """How `cls` was generated; None for a written class."""
    return vars(cls).get(_GENERATED)


def class_before(cls: type) -> type:
    """The written class under the generated ones."""
    made = generated(cls)
    return made.base if made else cls


def mixins_of(cls: type) -> tuple[type, ...]:
    """Every mixin in front of `cls`, the newest first."""
    made = next((found for base in cls.__mro__ if (found := generated(base))), None)
    return tuple(mixin for _, mixins in reversed(made.layers) for mixin in mixins) if made else ()


def specialise(cls: type, *mixins: type, owner: object = None) -> type:
    """A subclass of `cls` with `mixins` in front, under the name, qualname and module of `cls`.

    An instance whose `__class__` is set to it keeps its identity, hooks, aliases and state_dict. `owner` marks the
    layer, so that `without` can remove it even if other layers came later.
    """
    made = generated(cls) or Generated(cls, ())
    return _generate(Generated(made.base, (*made.layers, (owner, mixins))))


def without(cls: type, owner: object) -> type:
    """`cls` without the layers of `owner`; the written class itself when no layer is left."""
    made = generated(cls)
    if made is None:
        return cls
    layers = tuple(layer for layer in made.layers if layer[0] is not owner)
    return _generate(Generated(made.base, layers)) if layers else made.base


_CLASS = vars(object)["__class__"]


def set_class(module: object, cls: type) -> None:
    """Set the class of an instance, even if its own `__setattr__` or a property would refuse it."""
    _CLASS.__set__(module, cls)


class _WrittenClass:
    """Makes `layer.__class__` of a patched layer the written class, so that `layer.__class__ is nn.Linear` is true.

    A descriptor and not a property, since torch.jit.script compiles properties.
    """

    def __get__(self, instance: object, owner: type) -> type:
        # torch.export derives the class from it through which it runs the module.
        asking = sys._getframe(1).f_globals.get("__name__")
        return type(instance) if asking == PROXY_MAKER else class_before(type(instance))

    def __set__(self, instance: object, cls: type) -> None:
        set_class(instance, cls)


class _Quiet:
    """First base of every generated class: how a patched module is copied and pickled.

    A user's `__init_subclass__`, which may register classes, is not run. A pickle has the written class, and no
    attributes set by patches. A copy is patched until its original is restored, since some exporters copy the model.
    """

    __class__ = _WrittenClass()

    def __init_subclass__(cls, **kwargs: object) -> None: ...

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _written(self, getattr(class_before(type(self)), "__reduce_ex__")(self, protocol))  # noqa: B009

    def __copy__(self) -> Any:
        # The written class's: looked up through self, this method would call itself.
        own = getattr(class_before(type(self)), "__copy__", None)
        return _patched_too(self, own(self) if own else copy.copy(_Reduced(self, {})), copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        own = getattr(class_before(type(self)), "__deepcopy__", None)
        made = own(self, memo) if own else copy.deepcopy(_Reduced(self, memo), memo)
        # Noted before the attributes of patches are copied, which may refer back to the module.
        memo[id(self)] = made
        return _patched_too(self, made, lambda value: copy.deepcopy(value, memo))


class _Reduced:
    """Given to `copy` in place of the module: `copy` would call the module's own __copy__ again."""

    def __init__(self, module: Any, memo: dict[int, Any]) -> None:
        self.module, self.memo = module, memo

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, *rest = self.module.__reduce_ex__(protocol)

        def noted(*arguments: Any) -> Any:
            made = self.memo[id(self.module)] = make(*arguments)  # references back to the module must get the copy
            return made

        return noted, *rest


def _written(module: object, reduced: Any) -> Any:
    """What `__reduce_ex__` would return if the module were not patched."""
    if not isinstance(reduced, tuple):
        return reduced
    cls, before = type(module), class_before(type(module))
    make, arguments, *rest = reduced
    arguments = tuple(before if one is cls else one for one in arguments)
    if rest:
        rest[0] = _without_patches(module, rest[0])
    return (before if make is cls else make), arguments, *rest


def _without_patches(module: object, state: object) -> Any:
    if isinstance(state, tuple) and len(state) == 2:  # attributes, slots
        return _without_patches(module, state[0]), state[1]
    if not isinstance(state, dict):
        return state
    kept = dict(state)
    for log in _logs(type(module)):
        for name, before in log.items_before(vars(module)).items():
            if before is MISSING:
                kept.pop(name, None)
            elif name in kept:
                kept[name] = before
    return kept


def _patched_too(module: object, made: object, copied: Callable[[Any], Any]) -> Any:
    """The copy `made` of a module, with the same patches until the module is restored."""
    # A `__copy__` of the user's may return something else, which these patches do not fit.
    if type(made) is class_before(type(module)):
        set_class(made, type(module))
        for log in _logs(type(module)):
            log.adopt(module, made, copied)
    return made


# The log itself is in `swap.py`, which imports this file.
@runtime_checkable
class Log(Protocol):
    """An undo log, as this module sees it: the owner of layers, which knows what it changed in an instance."""

    def items_before(self, mapping: MutableMapping[Any, Any]) -> dict[Any, Any]: ...

    def adopt(self, module: object, made: object, copied: Callable[[Any], Any]) -> None: ...


def _logs(cls: type) -> list[Log]:
    layers = generated(cls)
    owners = [owner for owner, _ in reversed(layers.layers)] if layers else []
    return [owner for owner in dict.fromkeys(owners) if isinstance(owner, Log)]


def _generate(made: Generated) -> type:
    bases = [mixin for _, mixins in reversed(made.layers) for mixin in mixins]
    names = {name: getattr(made.base, name) for name in ("__module__", "__qualname__", "__doc__")}
    # No annotations of its own: torch.jit.script reads the class's attribute types through them.
    names["__annotations__"] = dict(getattr(made.base, "__annotations__", {}))
    # Made by the metaclass of the written class: Python accepts no other. Two layers may have the same mixin, and a
    # class may be a base only once.
    return type(made.base)(made.base.__name__, (_Quiet, *dict.fromkeys(bases), made.base), {**names, _GENERATED: made})


def written_type(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Replaces a call of `type`: `type(layer)` returns the class that the user wrote."""
    return class_before(type(args[0])) if len(args) == 1 and not kwargs else NotImplemented


def ask_for_types(modules: Iterable[types.ModuleType]) -> bool:
    """Whether code of these modules calls `type`."""
    return any(_asks(code) for module in modules for code in _code(module))


def _code(module: types.ModuleType) -> Iterator[types.CodeType]:
    """The code objects of the functions and methods that are defined in the module."""
    for value in list(vars(module).values()):
        # `type` is replaced in these modules only: imported code looks the name up elsewhere.
        if getattr(value, "__module__", None) == module.__name__:
            for one in (value, *vars(value).values()) if inspect.isclass(value) else (value,):
                function = inspect.unwrap(getattr(one, "__func__", one)) if callable(one) else one
                if inspect.isfunction(function):
                    yield function.__code__


# By code object, which never changes: the same modules are asked again for every model that they define.
@functools.lru_cache(maxsize=4096)
def _asks(code: types.CodeType) -> bool:
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    if any(_asks(one) for one in inner):
        return True
    # `x.type(torch.int64)` has the name in co_names too; only the instruction shows that it is an attribute.
    return "type" in code.co_names and any(
        step.argval == "type" and step.opname in ("LOAD_GLOBAL", "LOAD_NAME") for step in dis.get_instructions(code)
    )
