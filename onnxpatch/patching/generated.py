"""Generates subclasses with mixins in front of a module's class, and takes mixins out again.

    type(layer)                        Linear           written by torch
    specialise(Linear, StandIn)        Linear           generated: (_Quiet, StandIn, Linear)
    layer.__class__ = that             the same object, its weights, hooks and aliases; StandIn's methods come first

A generated class remembers its written class and its layers, one for each `patched`. So nested contexts can be left in
any order, and copies and pickles of a patched module work.

`layer.__class__ is nn.Linear` stays true by a descriptor; `type(layer) is nn.Linear` by `runtime.written_type`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from onnxpatch._torch import PROXY_MAKER

_GENERATED = "__onnxpatch_generated__"
MISSING = object()
"""In an undo log: the key did not exist."""


@dataclass(frozen=True)
class _Generated:
    """How a generated class was made. base: the written class. layers: (owner, mixins), oldest first."""

    base: type
    layers: tuple[tuple[object, tuple[type, ...]], ...]


def generated(cls: type) -> _Generated | None:
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
    made = generated(cls) or _Generated(cls, ())
    return _generate(_Generated(made.base, (*made.layers, (owner, mixins))))


def without(cls: type, owner: object) -> type:
    """`cls` without the layers of `owner`; the written class itself when no layer is left."""
    made = generated(cls)
    if made is None:
        return cls
    layers = tuple(layer for layer in made.layers if layer[0] is not owner)
    return _generate(_Generated(made.base, layers)) if layers else made.base


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

    def __reduce_ex__(self, protocol: object) -> Any:
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

        def noted(*arguments: Any) -> object:
            made = self.memo[id(self.module)] = make(*arguments)  # references back to the module must get the copy
            return made

        return noted, *rest


def _written(module: object, reduced: object) -> object:
    """What `__reduce_ex__` would return if the module were not patched."""
    if not isinstance(reduced, tuple):
        return reduced
    cls, before = type(module), class_before(type(module))
    make, arguments, *rest = reduced
    arguments = tuple(before if one is cls else one for one in arguments)
    if rest:
        rest[0] = _without_patches(module, rest[0])
    return (before if make is cls else make), arguments, *rest


def _without_patches(module: object, state: object) -> object:
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


def _patched_too(module: object, made: object, copied: Callable[[Any], Any]) -> object:
    """The copy `made` of a module, with the same patches until the module is restored."""
    # A `__copy__` of the user's may return something else, which these patches do not fit.
    if type(made) is class_before(type(module)):
        set_class(made, type(module))
        for log in _logs(type(module)):
            log.adopt(module, made, copied)
    return made


# The log itself is in `swap.py`, which imports this file.
@runtime_checkable
class _Log(Protocol):
    """An undo log, as this module sees it: the owner of layers, which knows what it changed in an instance."""

    def items_before(self, mapping: MutableMapping[Any, Any]) -> dict[Any, Any]: ...

    def adopt(self, module: object, made: object, copied: Callable[[Any], Any]) -> None: ...


def _logs(cls: type) -> list[_Log]:
    layers = generated(cls)
    owners = [owner for owner, _ in reversed(layers.layers)] if layers else []
    return [owner for owner in dict.fromkeys(owners) if isinstance(owner, _Log)]


def _generate(made: _Generated) -> type:
    bases = [mixin for _, mixins in reversed(made.layers) for mixin in mixins]
    names = {name: getattr(made.base, name) for name in ("__module__", "__qualname__", "__doc__")}
    # No annotations of its own: torch.jit.script reads the class's attribute types through them.
    names["__annotations__"] = dict(getattr(made.base, "__annotations__", {}))
    # Made by the metaclass of the written class: Python accepts no other. Two layers may have the same mixin, and a
    # class may be a base only once.
    bases = [_quiet(made.base), *dict.fromkeys(bases), made.base]
    return type(made.base)(made.base.__name__, tuple(bases), {**names, _GENERATED: made})


def _quiet(cls: type) -> type:
    """`_Quiet`, with its `__dict__` added to the same base as that of `cls`.

    Else Python refuses to change the class of an object. `class Layer(nn.Module)` adds it to `object`, as `_Quiet`
    does; `class Layer(ABC, nn.Module)` adds it to ABC, which has none. So do Generic, Protocol and bases with slots.
    """
    above = _above_attributes(cls)
    if above is object:
        return _Quiet
    # Generic refuses a class under itself that names neither type variables nor `__orig_bases__`.
    members = {name: value for name, value in vars(_Quiet).items() if name not in ("__dict__", "__weakref__")}
    made: type = type(above)("_Quiet", (above,), {**members, "__orig_bases__": ()})
    return made


def _above_attributes(cls: type) -> type:
    """The base to which `cls`, or a class above it, adds a `__dict__` or weak references."""
    base = cls.__base__
    while base is not None and _attributes(cls) == _attributes(base):
        cls, base = base, base.__base__
    return base or object


def _attributes(cls: type) -> tuple[bool, bool]:
    return bool(cls.__dictoffset__), bool(cls.__weakrefoffset__)
