"""Runs a patched model under an exporter: decides which function patch answers each call that the model makes.

`Scope.entered()` is the context in which the model runs. Inside it

    torch.add(x, y)        goes through a TorchFunctionMode, which asks the scope's `_Dispatcher`
    rearrange(x, "...")    goes through a substitute, set by `rebinding`, which asks it too
    running_model()        gives a stand-in the settings and parameters of the model that calls it

A scope belongs to one thread: the same functions called in another thread, or in eager, are the originals.

A call in place, `x.add_(y)`, goes to the patches of `x.add(y)` where no patch names it, and the result is written to x.

A stand-in runs only while an exporter that its patch names runs. It may return `NotImplemented`; then the next patch in
rank is asked, and last the original function runs. For F.interpolate with three patches:

    F.interpolate(x, ...)
      the user's patch of F.interpolate          returns NotImplemented: it did not act
      onnxpatch's patch of F.interpolate         returns a tensor: it acted, the call is answered
      onnxpatch's patch of "torch.*"             is not asked

The user's patches rank before onnxpatch's, and patches of every call of the function before those that choose calls
("torch.*"). While a stand-in runs, the same function goes to the patches that rank after it. So a user's stand-in that
calls the original gets onnxpatch's, and no stand-in is asked about its own call.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import operator
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch._torch.function_modes import (
    bodies_seen_by,
    device_of,
    export_error_recovery,
    modes_kept,
    torch_function_key,
)
from onnxpatch._torch.guards import ignore_frames
from onnxpatch._torch.signatures import Call, call_of
from onnxpatch.decisions import ask as asking
from onnxpatch.decisions.ask import answering, ask
from onnxpatch.messages.user_code import asking_frame, is_user_frame
from onnxpatch.patching import rebinding
from onnxpatch.patching.code_places import ask_for_types, defining_modules
from onnxpatch.patching.generated import class_before
from onnxpatch.patching.match import FunctionPatch
from onnxpatch.patching.registry import Patch
from onnxpatch.patching.when import ANY_TORCH_FUNCTION, EXPORT_QUESTIONS, is_plain_call, loaded
from onnxpatch.process import undone
from onnxpatch.settings import Settings, put_in_force

_RANK = operator.attrgetter("rank")


@functools.cache
def _in_place() -> dict[object, object]:
    """torch.Tensor.add by torch.Tensor.add_, and so on, where the result has the tensor's shape."""
    found = {}
    for home, name in itertools.product((torch, torch.Tensor), dir(torch.Tensor)):
        plain = getattr(home, name[:-1], None) if name.endswith("_") and not name.endswith("__") else None
        if plain is not None and name not in _RESHAPING and hasattr(home, name):
            found[getattr(home, name)] = plain
    return found


_RESHAPING = {"squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_", "resize_",
              "resize_as_", "set_", "detach_"}  # fmt: skip


class _Running(threading.local):
    """What runs in this thread, the innermost last: (function, patch) of stand-ins, and patched models."""

    def __init__(self) -> None:
        self.calls: tuple[tuple[Any, Patch], ...] = ()
        self.scopes: list[Scope] = []


_running = _Running()


class _Dispatcher:
    """The function patches of one patched model. hits: by name, how many calls each of them answered."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self._named: dict[Any, list[Patch]] = {}
        self._choosing: dict[Any, list[Patch]] = {}  # those that take over some calls of the functions they name
        self._by_call: list[Patch] = []

    def add(self, patches: Iterable[tuple[Patch, Collection[object]]]) -> None:
        """Add patches, each with the functions that it names; none for one that chooses among all (`calls`)."""
        for patch, functions in sorted(patches, key=lambda entry: entry[0].rank):
            by_function = self._choosing if patch.when.calls or not patch.when.plain else self._named
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
        # This runs for every torch call of the model: most have no patch, and cost two look-ups and the conditions.
        named = self.named(function, args, kwargs)
        by_call = _taking(self._by_call, function, args, kwargs)
        return sorted([*named, *by_call], key=_RANK) if by_call else named

    def named(self, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Patch]:
        """The patches that name a function, without those that leave this call of it to others, by rank."""
        named, choosing = self._named.get(function, []), self._choosing.get(function)
        if choosing is None:
            return named
        return sorted([*named, *_taking(choosing, function, args, kwargs)], key=_RANK)

    def answer(
        self, patches: list[Patch], function: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Any:
        """The result of the first of `patches` that acts; NotImplemented where none does."""
        now = exporting()
        for patch in _after_running(patches, function, args):
            if now not in patch.when.exporters:
                continue
            # A patch that chose the call has seen its arguments as they are, and gets them so.
            call: Call | None = (args, kwargs)
            if not patch.when.calls:
                call = call_of(patch.stand_in, function, args, kwargs, takes_original=patch.takes_original)
            # call None: the stand-in has no parameter for an argument that was given.
            found = NotImplemented if call is None else _called(patch, function, *call)
            # Only what changed something has acted: the report and the file name no others.
            if found is not NotImplemented:
                self.hits[patch.name] += 1
                return found
        return NotImplemented


def _jagged(types: Iterable[type]) -> bool:
    # A jagged tensor (patches/torch_ops/batch_parts.py) calls the function for each of its parts, with patches.
    return any(hasattr(one, "jagged") for one in types)


def _taking(patches: list[Patch], function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Patch]:
    """Those of `patches` whose conditions on the call hold."""
    plain = bool(patches) and is_plain_call(function, args, kwargs)
    asked = [patch for patch in patches if patch.when.plain or not plain]
    return [patch for patch in asked if patch.when.calls is None or patch.when.calls(function, args, kwargs)]


def _after_running(patches: list[Patch], function: object, args: tuple[object, ...]) -> list[Patch]:
    """Those of `patches` that rank after the stand-in of the same function that runs now."""
    if isinstance(function, classmethod):  # of another class, as an autograd function inside of one
        return patches
    # Identity is not enough: a bound method of a class, such as Tensor.mT.__get__, is a new object at each look-up.
    standing = [patch for called, patch in _running.calls if called is function or called == function]
    if any(map(callable, args)):  # torch.cond within a branch of torch.cond: the model's own call
        standing = [patch for patch in standing if patch.takes_original]
    last = max((patches.index(patch) for patch in standing if patch in patches), default=-1)
    return patches[last + 1 :]


def _called(patch: Patch, function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    before = _running.calls
    # A call that an interrupt left in the list would keep its patch from acting in this thread for good.
    # What a stand-in makes is on the device of its arguments; of torch.cond's bodies the model says where.
    values = [] if any(map(callable, args)) else [*args, *kwargs.values()]
    with undone(lambda: setattr(_running, "calls", before)), device_of(values):
        _running.calls = (*before, (function, patch))
        return patch.stand_in(*([function] if patch.takes_original else ()), *args, **kwargs)


class RunningModel(Protocol):
    """What a stand-in can read of the patched model that calls it.

    settings: the options of `patched` or `export`. model: the model itself, or the exporter's copy of it.
    tensors: its parameters and buffers by name, with their values. In `model` they may be FakeTensors meanwhile.
    """

    settings: Settings
    model: torch.nn.Module | None
    tensors: dict[str, torch.Tensor]


def running_model() -> RunningModel | None:
    """The patched model that an exporter runs in this thread now, the innermost of several; None where none runs.

    For stand-ins, such as `running_model().settings.opset`. Returns a `RunningModel` with `settings`, `model` and
    `tensors` (its parameters and buffers by name).
    """
    return _running.scopes[-1] if _running.scopes else None


class Scope:
    """The settings and patches of one patched model.

    settings: what the user asked for. hits: by name, how often each patch acted. model: the patched model.
    tensors: its parameters and buffers by name, as they were before an exporter replaced them by FakeTensors.
    refused: the message of the RefusedError that ended the last run under an exporter, or "".
    shows_stand_ins: whether `type(layer)` in the model's code is a stand-in's class where names are not exchanged.
    """

    def __init__(self, settings: Settings, paths: dict[int, str]) -> None:
        self.settings = settings
        self.refused = ""
        self.shows_stand_ins = False
        self.model: torch.nn.Module | None = None
        self.tensors: dict[str, torch.Tensor] = {}
        self._paths = paths
        self.dispatcher = _Dispatcher()
        self._cached: set[Any] = set()
        self._substitutions: list[rebinding.Substitution] = []
        self._types: list[rebinding.Substitution] = []
        self._questions: list[rebinding.Substitution] = []

    def path_of(self, module: object) -> str:
        """The module's path in the patched model ("" for the root), for messages."""
        return self._paths.get(id(module), f"<{type(module).__name__} outside the patched model>")

    def watch(
        self, model: torch.nn.Module, patches: list[FunctionPatch], classes: set[type], swapped: bool = False
    ) -> None:
        """Let function patches act while the model runs. classes: those of the model's modules. swapped: whether any of
        these has a stand-in."""
        self._set_model(model)
        elsewhere: list[tuple[str, Any]] = []
        named: list[tuple[Patch, Collection[Any]]] = []
        for patch, targets in patches:
            keys = []
            for path, function in targets:
                if path == ANY_TORCH_FUNCTION:
                    continue
                # torch's mode catches a call under whatever name it was made; other functions must be replaced name by
                # name.
                key = None if patch.when.by_name else torch_function_key(function)
                if key is None:
                    elsewhere.append((path, function))
                keys.append(function if key is None else key)
            named.append((patch, dict.fromkeys(keys)))
        self.dispatcher.add(named)
        # Functions with lru_cache run without it: the cache would keep FakeTensors of torch.export for later calls.
        cached = {function: path for path, function in rebinding.memoised(classes)}
        elsewhere += [(path, function) for function, path in cached.items()]
        self._cached = set(cached)
        self._substitutions = rebinding.substitutions(model, elsewhere, classes, ask) if elsewhere else []
        if ask_for_types(defining_modules(classes)):
            self._types = rebinding.substitutions(model, [("builtins.type", type)], classes, written_type)
            self.shows_stand_ins = swapped
        if self.settings.as_in_eager:
            self._questions = rebinding.substitutions(model, loaded([EXPORT_QUESTIONS])[0], classes, no_export)

    @property
    def hits(self) -> Counter[str]:
        """By name, how often each patch acted."""
        return self.dispatcher.hits

    def acted(self, patch: str) -> None:
        """Count that a patch acted."""
        self.dispatcher.hits[patch] += 1

    @property
    def watched(self) -> set[str]:
        """Names of the function patches that can act."""
        return {patch.name for patch in self.dispatcher.patches()}

    def _set_model(self, model: torch.nn.Module) -> None:
        self.model = model
        self.tensors = dict((*model.named_parameters(), *model.named_buffers()))

    @contextlib.contextmanager
    def entered(self, running: torch.nn.Module | None = None) -> Iterator[Scope]:
        """A context in which the patches act in this thread.

        running: the model that runs. It may be a copy of the patched one, with parameters of its own: some exporters
        copy the model first.
        """
        # A copy: the list of this thread is set back even if an inner context was not left properly.
        outside = list(_running.scopes)
        with modes_kept(), contextlib.ExitStack() as stack:
            if running is not None and self.model is not None and running is not self.model:
                stack.callback(self._set_model, self.model)
                self._set_model(running)
            stack.enter_context(rebinding.installed([*self._substitutions, *self._types, *self._questions]))
            # Messages name modules by their path in this model.
            stack.enter_context(put_in_force(self.settings, self.path_of))
            if exporting() == "dynamo":
                stack.enter_context(ignore_frames(self._files()))
                stack.enter_context(export_error_recovery())
            elif exporting() == "trace":
                from onnxpatch._torch.script_tracing import compiled_within, traced

                stack.enter_context(traced())
                stack.enter_context(compiled_within(rebinding.as_written))
            # The mode last, so that it sees no call of the contexts above. Without patches every call is spared it.
            if self.watched:
                stack.enter_context(_Dispatch(self))
            stack.enter_context(answering({"patches": self.answer}))
            stack.enter_context(undone(lambda: setattr(_running, "scopes", outside)))
            _running.scopes = [*outside, self]
            yield self

    def types_as_written(self) -> contextlib.AbstractContextManager[object]:
        """A context for the model in eager: `type(layer)` in its code is the class that the user wrote."""
        return rebinding.installed(self._types) if self._types else contextlib.nullcontext()

    def _files(self) -> set[str]:
        """onnxpatch's files that may stand between a line of the model and torch in a stack."""
        written = [patch.stand_in for patch in self.dispatcher.patches()]
        stand_ins = [*written, *map(inspect.unwrap, written)]
        files = {stand_in.__code__.co_filename for stand_in in stand_ins if inspect.isfunction(stand_in)}
        return files | {__file__, rebinding.__file__, asking.__file__}

    def answer(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a patch for a call of a function that is replaced by name; NotImplemented if none acts."""
        # A function with lru_cache runs uncached: see `watch`.
        if function in self._cached and exporting() is not None:
            return function.__wrapped__(*args, **kwargs)
        if _jagged(map(type, (*args, *kwargs.values()))):
            return NotImplemented
        return self.dispatcher.answer(self.dispatcher.named(function, args, kwargs), function, args, kwargs)


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """A context without any scope in this thread, for modules that opted out."""
    scopes = _running.scopes
    with answering({"patches": None}), undone(lambda: setattr(_running, "scopes", scopes)):
        _running.scopes = []
        yield


class _Dispatch(TorchFunctionMode):
    """Passes torch calls to their stand-ins. Inside a stand-in it is active again, for every other function."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _jagged(types):
            return NotImplemented
        # Dynamo compiles the bodies of torch.cond and torch.while_loop, and this method with them. It could not
        # compile reads of the scope, so no patch acts there.
        if torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        # `suspended` empties the list of active scopes: then no patch is asked.
        if self._scope not in _running.scopes:
            return function(*args, **kwargs)
        found, dispatcher = NotImplemented, self._scope.dispatcher
        patches = dispatcher.asked(function, args, kwargs)
        if patches:
            with self:
                found = dispatcher.answer(patches, function, args, kwargs)
        plain = _in_place().get(function) if found is NotImplemented else None
        if plain is not None:  # x.add_(y) by what stands in for x.add(y)
            more = [patch for patch in dispatcher.asked(plain, args, kwargs) if patch not in patches]
            with self:
                made = dispatcher.answer(more, plain, args, kwargs)
                found = made if made is NotImplemented else args[0].copy_(made)
        return function(*bodies_seen_by(self, function, args), **kwargs) if found is NotImplemented else found


def written_type(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Replaces a call of `type`: `type(layer)` returns the class that the user wrote."""
    return class_before(type(args[0])) if len(args) == 1 and not kwargs else NotImplemented


def no_export(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Answers torch.onnx.is_in_onnx_export() and its like with False, if the model asks; torch and patches ask, too."""
    frame = asking_frame(sys._getframe(1), "onnxpatch.patching", "onnxpatch.decisions")
    return False if frame is not None and is_user_frame(frame) else NotImplemented
