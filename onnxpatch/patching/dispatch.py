"""Decides which function patch answers a call, and counts the patches that did.

A stand-in runs only while an exporter that its patch names runs in this thread. It may return `NotImplemented`; then
the next patch in rank is asked, and last the original function runs. For F.interpolate with three patches:

    F.interpolate(x, ...)
      the user's patch of F.interpolate          returns NotImplemented: it did not act
      onnxpatch's patch of F.interpolate         returns a tensor: it acted, the call is answered
      onnxpatch's patch of "torch.*"             is not asked

The user's patches rank before onnxpatch's, and patches of every call of the function before those that choose calls
("torch.*"). While a stand-in runs, the same function goes to the patches that rank after it. So a user's stand-in that
calls the original gets onnxpatch's, and no stand-in is asked about its own call.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from onnxpatch._torch import exporting
from onnxpatch.formulas.binding import call_of
from onnxpatch.patching.registry import Patch
from onnxpatch.process import undone

_RANK = operator.attrgetter("rank")


class _Running(threading.local):
    def __init__(self) -> None:
        # (function, patch) of the stand-ins that run in this thread, the innermost last.
        self.calls: tuple[tuple[Any, Patch], ...] = ()


_running = _Running()


class Dispatcher:
    """The function patches of one patched model. hits: by name, how many calls each of them answered."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self._named: dict[Any, list[Patch]] = {}
        self._choosing: dict[Any, list[Patch]] = {}  # those that take over some calls of the functions they name
        self._by_call: list[Patch] = []

    def add(self, patches: Iterable[tuple[Patch, Collection[object]]]) -> None:
        """Add patches, each with the functions that it names; none for one that chooses among all (`calls`)."""
        for patch, functions in sorted(patches, key=lambda entry: entry[0].rank):
            by_function = self._choosing if patch.when.calls else self._named
            for function in functions:
                by_function.setdefault(function, []).append(patch)
            if patch.when.calls and not functions:
                self._by_call.append(patch)

    def patches(self) -> list[Patch]:
        """Every patch, once for each function that it names."""
        named = itertools.chain(self._named.values(), self._choosing.values())
        return [*itertools.chain.from_iterable(named), *self._by_call]

    def asked(self, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Patch]:
        """The patches of one torch call, by rank. Call it with function modes off: `calls` may call torch itself."""
        # This runs for every torch call of the model: most have no patch, and cost two look-ups and the `calls`.
        named = self.named(function, args, kwargs)
        by_call = [patch for patch in self._by_call if patch.when.calls and patch.when.calls(function, args, kwargs)]
        return sorted([*named, *by_call], key=_RANK) if by_call else named

    def named(self, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Patch]:
        """The patches that name a function, without those that leave this call of it to others, by rank."""
        named, choosing = self._named.get(function, []), self._choosing.get(function)
        if choosing is None:
            return named
        chosen = [patch for patch in choosing if patch.when.calls and patch.when.calls(function, args, kwargs)]
        return sorted([*named, *chosen], key=_RANK)

    def answer(
        self, patches: list[Patch], function: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """The result of the first of `patches` that acts; NotImplemented where none does."""
        now = exporting()
        for patch in _after_running(patches, function):
            if now not in patch.when.exporters:
                continue
            # A patch that chose the call has seen its arguments as they are, and gets them so.
            call = (args, kwargs) if patch.when.calls else call_of(patch.stand_in, function, args, kwargs)
            # call None: the stand-in has no parameter for an argument that was given.
            found = NotImplemented if call is None else _called(patch, function, *call)
            # Only what changed something has acted: the report and the file name no others.
            if found is not NotImplemented:
                self.hits[patch.name] += 1
                return found
        return NotImplemented


def _after_running(patches: list[Patch], function: object) -> list[Patch]:
    """Those of `patches` that rank after the stand-in of the same function that runs now."""
    # Identity is not enough: a bound method of a class, such as Tensor.mT.__get__, is a new object at each look-up.
    standing = [patch for called, patch in _running.calls if called is function or called == function]
    last = max((patches.index(patch) for patch in standing if patch in patches), default=-1)
    return patches[last + 1 :]


def _called(patch: Patch, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    before = _running.calls
    # A call that an interrupt left in the list would keep its patch from acting in this thread for good.
    with undone(lambda: setattr(_running, "calls", before)):
        _running.calls = (*before, (function, patch))
        return patch.stand_in(function, *args, **kwargs)
