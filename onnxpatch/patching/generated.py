"""Generated classes: mixins in front of the class of a living instance; how such an instance is copied and pickled."""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

_GENERATED = "__onnxpatch_generated__"
MISSING = object()
"""Stands for a key that was not there."""


@dataclass(frozen=True)
class Generated:
    """How a generated class was made: the class it stands in front of, and the layers laid over that, oldest first."""

    base: type
    layers: tuple[tuple[object, tuple[type, ...]], ...]


def generated(cls: type) -> Generated | None:
    """How `cls` was generated, or None for a class that somebody wrote."""
    return vars(cls).get(_GENERATED)


def class_before(cls: type) -> type:
    """The class under the generated ones."""
    made = generated(cls)
    return made.base if made else cls


def mixins_of(cls: type) -> tuple[type, ...]:
    """Every mixin in force on `cls`, the newest first."""
    made = next((found for base in cls.__mro__ if (found := generated(base))), None)
    return tuple(mixin for _, mixins in reversed(made.layers) for mixin in mixins) if made else ()


def specialise(cls: type, *mixins: type, owner: object = None) -> type:
    """A subclass of `cls` with `mixins` in front, under the name, qualname and module of `cls`.

    Keeps identity, hooks, aliases and state_dict of an instance whose `__class__` is set to it. `owner` marks the
    layer, so that `without` can take it away again whatever was laid over it since.
    """
    made = generated(cls) or Generated(cls, ())
    return _generate(Generated(made.base, (*made.layers, (owner, mixins))))


def without(cls: type, owner: object) -> type:
    """`cls` less the layers of `owner`: the written class itself when none is left."""
    made = generated(cls)
    if made is None:
        return cls
    layers = tuple(layer for layer in made.layers if layer[0] is not owner)
    return _generate(Generated(made.base, layers)) if layers else made.base


_CLASS = vars(object)["__class__"]


def set_class(module: object, cls: type) -> None:
    """Set the class of an instance, past any `__setattr__` or property of its own that refuses it."""
    _CLASS.__set__(module, cls)


class _WrittenClass:
    """`layer.__class__` of a patched layer is the class that was written: `layer.__class__ is nn.Linear` holds.

    No property, since torch.jit.script compiles those.
    """

    def __get__(self, instance: object, owner: type) -> type:
        return class_before(type(instance))

    def __set__(self, instance: object, cls: type) -> None:
        set_class(instance, cls)


class _Quiet:
    """First base of every generated class. The user's `__init_subclass__` (registries, options) is not run.

    A pickle holds the written class, without what patches set. A copy is patched as long as the module is that it was
    made of: some exporters copy the model first.
    """

    __class__ = _WrittenClass()

    def __init_subclass__(cls, **kwargs: object) -> None: ...

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _written(self, getattr(class_before(type(self)), "__reduce_ex__")(self, protocol))  # noqa: B009

    def __copy__(self) -> Any:
        own = getattr(class_before(type(self)), "__copy__", None)
        return _patched_too(self, own(self) if own else copy.copy(_Reduced(self, {})), copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        own = getattr(class_before(type(self)), "__deepcopy__", None)
        made = own(self, memo) if own else copy.deepcopy(_Reduced(self, memo), memo)
        memo[id(self)] = made
        return _patched_too(self, made, lambda value: copy.deepcopy(value, memo))


class _Reduced:
    """Stands for a module while it is copied, since `copy` would ask the module's own class again."""

    def __init__(self, module: Any, memo: dict[int, Any]) -> None:
        self.module, self.memo = module, memo

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, *rest = self.module.__reduce_ex__(protocol)

        def noted(*arguments: Any) -> Any:
            made = self.memo[id(self.module)] = make(*arguments)  # what refers back to the module gets the copy
            return made

        return noted, *rest


def _written(module: object, reduced: Any) -> Any:
    """How the module would be reduced if it were not patched."""
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
    """The copy `made` of a module, patched as the module is, until that is restored."""
    if type(made) is class_before(type(module)):
        set_class(made, type(module))
        for log in _logs(type(module)):
            log.adopt(module, made, copied)
    return made


@runtime_checkable
class Log(Protocol):
    """What notes how an instance was before it was patched: it owns layers of generated classes."""

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
    return type(made.base)(made.base.__name__, (_Quiet, *dict.fromkeys(bases), made.base), {**names, _GENERATED: made})
