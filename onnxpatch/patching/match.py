"""Which patches concern a class, and which loaded functions are patched: by dotted path, nothing imported."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from onnxpatch.errors import DuplicatePatchError
from onnxpatch.patching.decorators import own_patch
from onnxpatch.patching.fingerprints import known, unknown_body
from onnxpatch.patching.registry import Patch, Registry, resolve
from onnxpatch.patching.swap import class_before
from onnxpatch.settings import Settings

Candidate = tuple[Patch, "str | None"]


class Matcher:
    """Candidates by class, worked out once for each class of a model."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._settings = settings
        self._patches = list(registry)
        self._modules = [patch for patch in self._patches if patch.kind != "function"]
        self._known: dict[type, list[Candidate]] = {}

    def candidates(self, cls: type) -> list[Candidate]:
        """(patch, reason to refuse or None) for every patch whose target is `cls`; the one to prefer first."""
        found = self._known.get(cls)
        if found is None:
            found = self._known[cls] = self._find(cls)
        return found

    def functions(self) -> list[tuple[Patch, list[Any]]]:
        """Function patches whose library is loaded and whose conditions hold, with the functions they replace."""
        watched = []
        for patch in self._patches:
            if patch.kind == "function" and patch.conditions.refusal(self._settings) is None:
                found = [function for target in patch.targets if (function := resolve(target)) is not None]
                if found:
                    watched.append((patch, found))
        return watched

    def _find(self, cls: type) -> list[Candidate]:
        lineage = [base for base in _as_written(cls).__mro__ if base not in (object, torch.nn.Module)]
        ranked = []
        for patch in self._modules:
            depth = _depth(patch, lineage)
            if depth is not None:
                ranked.append((patch.ours, depth, patch))
        ranked.sort(key=lambda entry: entry[:2])  # a user's before ours, the nearer class before the farther
        _raise_if_ambiguous(cls, [entry for entry in ranked if self._refusal(entry[2], lineage[0]) is None])
        own = own_patch(cls)  # what the author of the class says goes first
        return [*([own] if own else []), *((patch, self._refusal(patch, lineage[0])) for _, _, patch in ranked)]

    def _refusal(self, patch: Patch, cls: type) -> str | None:
        return patch.conditions.refusal(self._settings) or unknown_body(cls, patch.bodies)


def _as_written(cls: type) -> type:
    cls = class_before(cls)
    # torch.nn.utils.parametrize puts a generated class in front of the written one.
    while cls.__name__.startswith("Parametrized") and "parametrizations" not in vars(cls) and len(cls.__bases__) == 1:
        under = class_before(cls.__bases__[0])
        if cls.__name__ != f"Parametrized{under.__name__}":
            break
        cls = under
    return cls


def _depth(patch: Patch, lineage: list[type]) -> int | None:
    for depth, base in enumerate(lineage if patch.subclasses else lineage[:1]):
        if any(_names(target, base) for target in patch.targets):
            return depth
    return 0 if lineage and known(lineage[0], patch.bodies) else None


def _names(target: str, cls: type) -> bool:
    if target.startswith("*."):
        return cls.__name__ == target[2:]
    if target == f"{cls.__module__}.{cls.__qualname__}":
        return True
    # A public alias (package.Class for package.module.Class): same last part, and it is that very class.
    return target.rpartition(".")[2] == cls.__name__ and resolve(target) is cls


def _raise_if_ambiguous(cls: type, ranked: list[tuple[bool, int, Patch]]) -> None:
    held = [entry for entry in ranked if not entry[2].accepts]
    for (ours, depth, first), (other_ours, other_depth, second) in itertools.pairwise(held):
        clash = first.methods & second.methods
        if clash and (ours, depth) == (other_ours, other_depth):
            raise DuplicatePatchError(
                f"{first.name} ({first.declared_at}) and {second.name} ({second.declared_at}) both stand in for "
                f"{', '.join(sorted(clash))} of {cls.__module__}.{cls.__qualname__}: name one of them in exclude="
            )
