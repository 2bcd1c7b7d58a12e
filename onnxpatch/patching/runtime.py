"""What is in force while a patched model runs, in this thread only: its settings and its function patches."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch._torch.caught_errors import ExportKept
from onnxpatch._torch.function_modes import torch_function_key
from onnxpatch._torch.guard_sources import ignore_frames
from onnxpatch._torch.script_tracing import traced
from onnxpatch.messages.module_paths import paths_named_by
from onnxpatch.patching import rebinding
from onnxpatch.patching.registry import Patch
from onnxpatch.settings import Settings


class _Active(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        # Functions whose stand-in is running: called again from there, they are themselves.
        self.running: list[Any] = []


_active = _Active()


def current() -> Scope | None:
    """The scope of the innermost patched model that is running in this thread, or None."""
    return _active.scopes[-1] if _active.scopes else None


class Scope:
    """One patched model's scope.

    settings: what the user asked for. hits: how often each function patch was called in place of its function.
    model: the patched model, once it is watched. tensors: its parameters and buffers by name; an exporter may have
    put others in their place while it runs.
    """

    def __init__(self, settings: Settings, paths: dict[int, str]) -> None:
        self.settings = settings
        self.hits: Counter[str] = Counter()
        self.model: torch.nn.Module | None = None
        self.tensors: dict[str, torch.Tensor] = {}
        self._paths = paths
        self._stand_ins: dict[Any, list[Patch]] = {}
        self._by_call: list[Patch] = []
        self._cached: set[Any] = set()
        self._substitutions: list[rebinding.Substitution] = []

    def path_of(self, module: object) -> str:
        """The module's path in the patched model ("" for the root), for messages."""
        return self._paths.get(id(module), f"<{type(module).__name__} outside the patched model>")

    def watch(self, model: torch.nn.Module, patches: list[tuple[Patch, list[Any]]], classes: set[type]) -> None:
        """Have the function `patches` act while the model runs. `classes` are those of the model's modules."""
        self._holds(model)
        elsewhere: list[tuple[str, Any]] = []
        self._by_call = [patch for patch, _ in patches if patch.calls]
        for patch, _ in patches:
            for path, function in patch_functions(patch):
                key = None if patch.by_name else torch_function_key(function)
                if key is None:
                    elsewhere.append((path, function))
                self._stand_ins.setdefault(function if key is None else key, []).append(patch)
        # torch.export would leave its FakeTensors in the caches of the model's functions, and later calls get them.
        cached = {function: path for path, function in rebinding.memoised(classes)}
        elsewhere += [(path, function) for function, path in cached.items()]
        self._cached = set(cached)
        self._substitutions = rebinding.substitutions(model, elsewhere, classes, _lookup) if elsewhere else []

    @property
    def watched(self) -> set[str]:
        """Names of the function patches in force."""
        return {patch.name for patch in self._patches()}

    def _patches(self) -> Iterator[Patch]:
        yield from itertools.chain(*self._stand_ins.values(), self._by_call)

    def _holds(self, model: torch.nn.Module) -> None:
        self.model = model
        self.tensors = dict((*model.named_parameters(), *model.named_buffers()))

    @contextlib.contextmanager
    def entered(self, running: torch.nn.Module | None = None) -> Iterator[Scope]:
        """In force inside the block, in this thread. running: the model that runs, where it is a copy of the patched
        one: some exporters copy the model first, and its tables are those of the copy."""
        with contextlib.ExitStack() as stack:
            if running is not None and self.model is not None and running is not self.model:
                stack.callback(self._holds, self.model)
                self._holds(running)
            for substitution in self._substitutions:
                substitution.install()
                stack.callback(substitution.remove)
            if exporting() == "dynamo":
                stack.enter_context(ignore_frames(self._files()))
                stack.enter_context(ExportKept())
            elif exporting() == "trace":
                stack.enter_context(traced())
            _active.scopes.append(self)
            stack.callback(_active.scopes.remove, self)
            stack.enter_context(paths_named_by(self.path_of))
            if self._stand_ins or self._by_call:
                stack.enter_context(_Dispatch(self))
            yield self

    def _files(self) -> Iterator[str]:
        """The kit's files between a model's line and torch."""
        yield from (__file__, rebinding.__file__)
        for patch in self._patches():
            if inspect.isfunction(patch.stand_in):
                yield patch.stand_in.__code__.co_filename

    def uncached(self, function: Any) -> Callable[..., Any] | None:
        """What `functools.lru_cache` was put on, while an exporter runs; None for other functions and in eager."""
        return function.__wrapped__ if function in self._cached and exporting() is not None else None

    def stand_in(
        self, function: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Callable[..., Any] | None:
        """What to call in place of `function`, or None where this scope leaves it alone.

        args, kwargs: those of the call, for patches that choose by them.
        """
        patch = _serving(self._stand_ins.get(function, ()))
        if patch is None:
            patch = next((p for p in self._by_call if p.calls and p.calls(function, args, kwargs or {})), None)
        if patch is None or function in _active.running:
            return None

        def call(*args: Any, **kwargs: Any) -> Any:
            self.hits[patch.name] += 1
            _active.running.append(function)
            try:
                return patch.stand_in(function, *args, **kwargs)
            finally:
                _active.running.pop()

        return call


def _serving(patches: Sequence[Patch]) -> Patch | None:
    """The patch of a function; of several, the last that serves the exporter which runs."""
    if len(patches) < 2:
        return patches[0] if patches else None
    now = exporting()
    return next((patch for patch in reversed(patches) if now is None or now in patch.conditions.exporters), None)


def patch_functions(patch: Patch) -> Iterator[tuple[str, Any]]:
    """(dotted path, function) of every target of a function patch whose library is loaded."""
    from onnxpatch.patching.registry import ANY_TORCH_FUNCTION, resolve

    for path in patch.targets:
        function = resolve(path)
        if function is not None and function != ANY_TORCH_FUNCTION:
            yield path, function.__func__ if isinstance(function, staticmethod) else function


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """No scope is in force inside the block, in this thread: for modules that opted out."""
    scopes, _active.scopes = _active.scopes, []
    try:
        yield
    finally:
        _active.scopes = scopes


def _lookup(function: Any) -> Callable[..., Any] | None:
    for scope in reversed(_active.scopes):
        call = scope.uncached(function) or scope.stand_in(function)
        if call is not None:
            return call
    return None


class _Dispatch(TorchFunctionMode):
    """Hands torch calls to their stand-ins; inside one, the mode is in force again for every other function."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = self._scope.stand_in(function, args, kwargs) if self._scope in _active.scopes else None
        if call is None:
            return function(*args, **kwargs)
        with self:
            return call(*args, **kwargs)
