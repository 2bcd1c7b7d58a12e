"""Finds the patches of a class, and the loaded functions that are patched. Nothing is imported."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from onnxpatch.errors import DuplicatePatchError
from onnxpatch.patching.fingerprints import has_known_bodies, unknown_body
from onnxpatch.patching.generated import class_before
from onnxpatch.patching.registry import FORWARD, STAND_IN, Patch, Registry
from onnxpatch.patching.when import loaded, resolve
from onnxpatch.process import undone
from onnxpatch.settings import Settings

FunctionPatch = tuple[Patch, list[tuple[str, Any]]]  # a patch, with the path and function of each target


class _Candidate(NamedTuple):
    """A patch whose target fits a class. refusal: why it does not apply, or None. rank: lower goes first."""

    patch: Patch
    refusal: str | None
    rank: tuple[bool, int, bool]


_OWN = (False, -1, False)  # a decorator of the class's author goes before every patch


def candidates_by_class(registry: Registry, settings: Settings) -> Callable[[type], list[_Candidate]]:
    """Every patch whose target fits a class, the preferred one first; looked for once for each class.

    A user's patch goes before onnxpatch's; a patch of the class itself before one of a base class; a patch that names
    the class before one that takes any class with that name or source.
    """
    patches = [patch for patch in registry if patch.kind != "function"]
    last_names = [{target.rpartition(".")[2] for target in patch.targets} for patch in patches]

    @functools.cache
    def candidates(cls: type) -> list[_Candidate]:
        lineage = [base for base in _as_written(cls).__mro__ if base not in (object, torch.nn.Module)]
        names = {name.rpartition(".")[2] for base in lineage for name in (base.__name__, base.__qualname__)}
        found = []
        for patch, last in zip(patches, last_names, strict=True):
            # Most patches name none of the classes, which their last names show at once.
            depth = _depth(patch, lineage, may_be_named=not names.isdisjoint(last))
            if depth is not None:
                place = (patch.ours, depth, not _named_exactly(patch, lineage[depth]))
                found.append(_Candidate(patch, _refusal(patch, lineage[0], settings), place))
        own = _own_patch(cls)
        return [*([_Candidate(*own, _OWN)] if own else []), *sorted(found, key=lambda each: each.rank)]

    return candidates


def usable_functions(registry: Registry, settings: Settings) -> list[FunctionPatch]:
    """Function patches whose library is loaded and whose conditions are met, with the functions they replace."""
    usable = [patch for patch in registry if patch.kind == "function" and patch.when.refusal(settings) is None]
    found = zip(usable, loaded([patch.targets for patch in usable]), strict=True)
    return sorted(((patch, targets) for patch, targets in found if targets), key=lambda entry: entry[0].rank)


def _refusal(patch: Patch, cls: type, settings: Settings) -> str | None:
    unmet, unknown = patch.when.refusal(settings), unknown_body(cls, patch.when.bodies)
    return unmet or (f"{unknown}; {patch.instead}" if unknown else None)


def _as_written(cls: type) -> type:
    cls = class_before(cls)
    # torch.nn.utils.parametrize generates a class too: look at the one behind it.
    while cls.__name__.startswith("Parametrized") and "parametrizations" not in vars(cls) and len(cls.__bases__) == 1:
        under = class_before(cls.__bases__[0])
        if cls.__name__ != f"Parametrized{under.__name__}":
            break
        cls = under
    return cls


def _depth(patch: Patch, lineage: list[type], may_be_named: bool) -> int | None:
    """How far up among its bases a class is named by a patch; 0 also for a copy of the code that the patch was written
    for; None where it is neither."""
    for depth, base in enumerate(lineage if patch.when.subclasses else lineage[:1]) if may_be_named else ():
        if any(_names(target, base) for target in patch.targets):
            return depth
    # torch's own layers are copies of nothing.
    theirs = bool(lineage) and not lineage[0].__module__.startswith("torch.nn.")
    return 0 if theirs and has_known_bodies(lineage[0], patch.when.bodies) else None


def _names(target: str, cls: type) -> bool:
    if target.startswith("*."):
        return cls.__name__ == target[2:]
    if target == f"{cls.__module__}.{cls.__qualname__}":
        return True
    # A public alias (package.Class of package.module.Class) names the same class: its last part is the same.
    return target.rpartition(".")[2] == cls.__name__ and resolve(target) is cls


def _named_exactly(patch: Patch, cls: type) -> bool:
    return any(not target.startswith("*.") and _names(target, cls) for target in patch.targets)


def raise_if_ambiguous(cls: type, candidates: list[_Candidate]) -> None:
    """Raises DuplicatePatchError if two patches of the same rank replace the same method."""
    # A patch with `accepts` may still refuse the instance, so that it clashes with none for certain.
    certain = [each for each in candidates if each.refusal is None and not each.patch.when.accepts]
    # Sorted by rank: patches of equal rank are neighbours.
    for first, second in itertools.pairwise(certain):
        clash = first.patch.methods & second.patch.methods
        if clash and first.rank == second.rank:
            raise DuplicatePatchError(
                f"{_placed(first.patch)} and {_placed(second.patch)} both stand in for "
                f"{', '.join(sorted(clash))} of {cls.__module__}.{cls.__qualname__}: name one of them in exclude="
            )


def ties(functions: list[FunctionPatch]) -> list[str]:
    """A sentence for every two patches of the user's that name the same function for the same exporter.

    The order of onnxpatch's own patches is intended.
    """
    by_function: dict[Any, list[Patch]] = {}
    for patch, targets in functions:
        for function in {function for _, function in targets} if patch.when.calls is None else ():
            by_function.setdefault(function, []).append(patch)
    found: dict[str, None] = {}
    for patches in by_function.values():
        for first, second in itertools.combinations(patches, 2):
            # Only one exporter runs at a time: patches for different ones never meet.
            if not (first.ours or second.ours) and {*first.when.exporters} & {*second.when.exporters}:
                found[
                    f"{_placed(first)} and {_placed(second)} name the same function: {first.name} is asked first, "
                    f"{second.name} where that returns NotImplemented; name one of them in exclude= if it is not to act"
                ] = None
    return list(found)


def _placed(patch: Patch) -> str:
    return f"{patch.name} ({patch.declared_at})"


# ------------------------------------------------------------------ decorators
def _own_patch(cls: type) -> tuple[Patch, str | None] | None:
    """(patch, reason why it does not apply, or None) of a class with a decorator; None for a class without one."""
    written = class_before(cls)
    for depth, base in enumerate(written.__mro__):
        marked = [value for value in vars(base).values() if getattr(value, FORWARD, False)]
        stand_in = vars(base).get(STAND_IN)
        if marked or stand_in:
            patch = _forward_patch(written, marked[0]) if marked else _stand_in_patch(base, stand_in)
            return patch, _overridden(written, depth)
    return None


def _overridden(cls: type, depth: int) -> str | None:
    for nearer in cls.__mro__[:depth]:
        # The nearer forward is another computation, of which the marked method knows nothing.
        if "forward" in vars(nearer):
            return f"{nearer.__name__} overrides forward without opting in itself"
    return None


def _forward_patch(cls: Any, method: Callable[..., Any]) -> Patch:
    forward = _until_reentered(method, cls.forward)
    mixin = type("OnnxForward", (), {"forward": forward, "__module__": method.__module__})
    return Patch("onnx_forward", (_path(cls),), mixin, f"{cls.__name__}.{method.__name__} is marked @onnx_forward")


def _stand_in_patch(cls: type, stand_in: Any) -> Patch:
    why = f"{cls.__name__} names {stand_in.__name__} as its stand-in"
    return Patch("onnx_standin", (_path(cls),), stand_in, why, replaces=issubclass(stand_in, torch.nn.Module))


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _until_reentered(method: Callable[..., object], original: Callable[..., object]) -> Callable[..., Any]:
    """`method`; called again from inside itself on the same instance, it runs `original`."""
    # Another thread may run the same instance in eager.
    running = threading.local()

    @contextlib.contextmanager
    def entering(module: object) -> Iterator[bool]:
        inside: frozenset[int] = vars(running).get("inside", frozenset())
        with undone(lambda: setattr(running, "inside", inside)):
            running.inside = inside | {id(module)}
            yield id(module) not in inside

    def forward(self: Any, *args: object, **kwargs: object) -> Any:
        with entering(self) as first:
            return (method if first else original)(self, *args, **kwargs)

    # torch.jit.script compiles the source of `__wrapped__`, but looks names up in the globals of the function itself.
    there = types.FunctionType(forward.__code__, method.__globals__, method.__name__, None, forward.__closure__)
    return functools.wraps(method)(there)
