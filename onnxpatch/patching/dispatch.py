"""Which function patch takes over a call, in which order they are asked, and which of them acted.

A stand-in is called only while an exporter runs in this thread that its patch names. It may return `NotImplemented`:
then the next patch in rank is asked, and at last the function itself is called.

The rank: a user's patch before one of the kit's; a patch that names the function before one that chooses by the call
("torch.*"). Inside a stand-in, the same function goes to the patches that rank after it: so a user's stand-in that
calls the original gets the kit's, and no stand-in is asked about its own call.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from onnxpatch._torch import exporting
from onnxpatch.formulas.binding import call_of
from onnxpatch.patching.registry import Patch

_RANK = operator.attrgetter("rank")


class _Running(threading.local):
    def __init__(self) -> None:
        # (function, patch) of the stand-ins that run in this thread, the innermost last.
        self.calls: list[tuple[Any, Patch]] = []


_running = _Running()


class Dispatcher:
    """The function patches of one patched model. hits: how often each of them changed a call."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self._named: dict[Any, list[Patch]] = {}
        self._by_call: list[Patch] = []

    def add(self, patch: Patch, functions: Iterable[object]) -> None:
        """Have `patch` asked about calls of the functions, or about every call that its `calls` picks."""
        if patch.calls:
            self._by_call = sorted([*self._by_call, patch], key=_RANK)
        for function in functions:
            self._named[function] = sorted([*self._named.get(function, ()), patch], key=_RANK)

    def patches(self) -> list[Patch]:
        """Every patch that is asked; one that names several functions comes more than once."""
        return [*itertools.chain.from_iterable(self._named.values()), *self._by_call]

    def asked(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Patch]:
        """The patches that a torch call concerns, in their order; to be found while no mode sees what `calls` does."""
        named = self._named.get(function, [])
        by_call = [patch for patch in self._by_call if patch.calls and patch.calls(function, args, kwargs)]
        return sorted([*named, *by_call], key=_RANK) if by_call else named

    def named(self, function: object) -> list[Patch]:
        """The patches that name a function, in their order."""
        return self._named.get(function, [])

    def answer(self, patches: list[Patch], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the first of `patches` that acts makes of the call; NotImplemented where none does."""
        now = exporting()
        for patch in _after_running(patches, function):
            if now not in patch.conditions.exporters:
                continue
            # A patch that takes any function knows no function's arguments.
            call = (args, kwargs) if patch.calls else call_of(patch.stand_in, function, args, kwargs)
            found = NotImplemented if call is None else _called(patch, function, *call)
            if found is not NotImplemented:
                self.hits[patch.name] += 1
                return found
        return NotImplemented


def _after_running(patches: list[Patch], function: object) -> list[Patch]:
    """The patches that may be asked in the middle of a stand-in of the same function: those that rank after it."""
    standing = [patch for called, patch in _running.calls if called is function or called == function]
    last = max((patches.index(patch) for patch in standing if patch in patches), default=-1)
    return patches[last + 1 :]


def _called(patch: Patch, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    _running.calls.append((function, patch))
    try:
        return patch.stand_in(function, *args, **kwargs)
    finally:
        _running.calls.pop()
