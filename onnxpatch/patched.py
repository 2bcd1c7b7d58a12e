"""Patches a model in place and takes the patches out again: `patch_model` and `patched`."""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import sys
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

import torch

from onnxpatch._torch import written_callables
from onnxpatch._torch.one_export import public_export_alone
from onnxpatch.errors import InputError
from onnxpatch.inputs.validate import check_depth
from onnxpatch.patching import runtime as scopes
from onnxpatch.patching.forward_state import restore_training
from onnxpatch.patching.generated import class_before
from onnxpatch.patching.mixins import export_only, replace_in_place, root_mixin, watched_functions
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.plan import plan as make_plan
from onnxpatch.patching.registry import REGISTRY, Registry
from onnxpatch.patching.runtime import Scope
from onnxpatch.patching.swap import UndoLog, claim
from onnxpatch.settings import Exporter, make_settings

_ENTERED = ("SETUP_WITH", "BEFORE_WITH")  # Python 3.10; 3.11 to 3.13


class _OptedOut:
    """The mixin of a module that `keep` opted out: no function patch acts inside."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        with scopes.suspended():
            return super().__call__(*args, **kwargs)  # type: ignore[misc]


class Patched:
    """A patched model, as `patch_model` returns it. As a context manager it restores the model on leaving.

    model: the model itself, patched in place. plan: the `Plan` of what was swapped.
    scope: what happens while the model runs; `scope.hits` counts the calls of each patch that changed something.
    """

    # In `with patch_model(model)`, Ctrl-C may come after `patch_model` has returned and before `__enter__` runs, or
    # before the first line of `__exit__`: nobody restores the model then. So this object restores it when it is
    # deleted. For the same reason nothing that the model refers to may keep a reference to this object.

    def __init__(self, made: Plan, example: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> None:
        self.model = made.model
        self.plan = made
        self.example = example
        self.scope = Scope(made.settings, made.paths)
        self._log = UndoLog()
        self._mixins: dict[tuple[type, str], type] = {}
        # Whether the model is restored with the end of this object.
        self._entered = True

    def apply(self) -> Patched:
        """Apply the whole plan, or none of it. Raises InputError while another thread has the model patched."""
        return self._start(alone=False)

    def _start(self, alone: bool) -> Patched:
        """Apply the plan. alone: torch.onnx.export waits for other exports until the model is restored."""
        check_depth(self.model)
        try:
            claim(self.model, self._log)
            held = contextlib.ExitStack()
            self._log.call(held.close)
            if alone:
                held.enter_context(public_export_alone())
            # The log is undone backwards: modes are set once every module has its own class again.
            self._log.call(functools.partial(restore_training, self.model, self.plan.modes))
            self._uncompile()
            for swap in self.plan.swaps:
                self._apply(swap)
            for module in self.plan.kept:
                self._specialise(module, _OptedOut)
            if self.plan.settings.branches:
                from onnxpatch import control_flow  # loaded only when asked for

                if alone:
                    held.enter_context(control_flow.unused_removed())
                control_flow.install(self.model, self.plan.settings, self._specialise, self.example)
            self._open_scope()
            return self  # inside the try, so that an interrupt at this line is undone too
        except BaseException:
            self._log.undo()
            raise

    def __repr__(self) -> str:
        return f"<Patched {self.plan.headline()}>"

    def restore(self) -> None:
        """Take all patches out: the model is as it was. A second call does nothing."""
        try:
            self._log.undo()
        finally:  # again, if an interrupt stopped the first
            self._log.undo()

    def __enter__(self) -> Patched:
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.restore()

    def __del__(self) -> None:
        # Patches of `patch_model` outlive what it returned, unless that was a context.
        if getattr(self, "_entered", False):
            self.restore()

    def _apply(self, swap: Swap) -> None:
        if swap.patch.kind == "replacement":
            replace_in_place(swap.module, swap.patch, self._log)
            return
        for name, value in swap.attributes.items():
            self._log.set_attr(swap.module, name, value)
        key = type(swap.module), swap.patch.name
        if key not in self._mixins:
            self._mixins[key] = export_only(swap.patch, type(swap.module), self.scope.acted)
        self._specialise(swap.module, self._mixins[key])

    def _uncompile(self) -> None:
        # Patches cannot act in code compiled by torch.compile, and the TorchScript exporter refuses it.
        for module, _ in self.plan.modes:
            for name, written in list(written_callables(module)):
                self._log.set_attr(module, name, written)

    def _open_scope(self) -> None:
        watched = watched_functions(self.model)
        functions = [(patch, found) for patch, found in self.plan.functions if patch.name not in watched]
        if not functions and not self.plan.swaps and not self.plan.settings.branches:
            return
        if self.plan.settings.exporter == "trace":
            from onnxpatch.exporters.torchscript import defaults_kept

            if (defaults := defaults_kept(self.model)) is not None:
                self._specialise(self.model, defaults)
        # The root's mixin comes last, so that it stands in front of all others and enters the scope before they run.
        self.scope.watch(self.model, functions, self.plan.classes, bool(self.plan.swaps))
        self._specialise(self.model, root_mixin(self.scope))

    def _specialise(self, module: torch.nn.Module, mixin: type) -> None:
        try:
            self._log.specialise(module, mixin)
        except TypeError as error:  # a metaclass that refuses subclasses, or __slots__ that do not fit
            path, cls = self.plan.paths.get(id(module), ""), class_before(type(module)).__qualname__
            way_on = f". Leave it as it is with exclude={path!r}" if path else ""
            raise InputError(
                f"{path or 'the model itself'} cannot be patched, since {cls} takes no subclass: {error}{way_on}"
            ) from error


def patch_model(
    model: torch.nn.Module,
    *,
    only: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    exporter: Exporter | None = None,
    opset: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    registry: Registry = REGISTRY,
    example: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
    **options: Any,
) -> Patched:
    """Patch `model` in place, until `.restore()`. Patching a patched model again does nothing.

        made = onnxpatch.patch_model(model)
        torch.onnx.export(model, args, "m.onnx", dynamo=True)
        made.restore()

    The patches act only while an exporter runs the model; in eager it computes what it always did. No weight is copied.
    One thread at a time can have a model patched.

    only, exclude: names of patches or paths of modules, `*` allowed; a path stands for all under it. only: no others;
        exclude: all others.
    exporter: "dynamo", "trace" or "script", if known. Patches for other exporters are left out of the plan.
    opset: the opset of the file, if known: a higher one allows faster forms (Attention, RMSNormalization and
        RotaryEmbedding from 23 on).
    operators: "portable", or "onnxruntime" for operators of onnxruntime's own (com.microsoft), where they are faster.
    image_size: (height, width) in pixels; position tables become constants for that size.
    form: "dynamic" or "static", for all position tables, or a mapping from names of patches to either.
    branches: export every side of a Python `if` on a tensor's value or on a size. max_paths: then the most paths of one
        call of a module, 64 unless given. branch_form: "where", "if", or "auto" for the cheaper one.
    as_in_eager: torch.onnx.is_in_onnx_export, torch.jit.is_tracing, torch.compiler.is_exporting, is_compiling and
        is_dynamo_compiling answer the model's code with False: what it does only in an export is left out.
    example: (args, kwargs), what the model will be exported with.
    registry: the patches to choose from.
    options: further keywords, which patches declare (`patch(..., options=("name",))`).

    Returns a `Patched`: `.plan`, `.restore()`. If any swap fails, none is left.
    Raises UnknownPatchError, UnknownExporterError, ScriptedModelError, and InputError for an option that no patch
    declares or a model that another thread has patched; the model is untouched then.
    """
    made = _planned(
        model, only=only, exclude=exclude, exporter=exporter, opset=opset, image_size=image_size, branches=branches,
        registry=registry, example=example, **options,
    )  # fmt: skip
    made.apply()
    # From here on the caller restores. A `with` statement does so only after it has entered, and an interrupt may come
    # before that.
    made._entered = asked_by_with(sys._getframe(1))
    return made


def _planned(
    model: torch.nn.Module, *, only: Any, exclude: Any, registry: Registry, example: Any, **named: Any
) -> Patched:
    """What `patch_model` returns, with nothing applied yet."""
    planned = make_plan(model, only=only, exclude=exclude, registry=registry, settings=make_settings(**named))
    return Patched(planned, example)


class patched:  # named like the function it stands for: `with onnxpatch.patched(model):`
    """Patch a model for the length of a `with` block: on entering, and until it is left, also by an exception.

        with onnxpatch.patched(model) as made:
            torch.onnx.export(model, args, "m.onnx", dynamo=True)  # or any tool that does so inside

    The arguments, and what is raised, are those of `patch_model`; `made` is its `Patched`. In the block
    torch.onnx.export runs in one thread at a time.
    """

    # Python can be interrupted between the end of `__enter__` and the block, or before the first line of `__exit__`.
    # Then nobody calls `__exit__`; the model is restored as soon as the exception has been handled and the context is
    # gone.

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        only: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] | None = None,
        exporter: Exporter | None = None,
        opset: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        branches: bool = False,
        registry: Registry = REGISTRY,
        example: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """The keywords are those of `patch_model`; the model is patched on entering, not before."""
        self._model = model
        self._options: dict[str, Any] = {
            "only": only, "exclude": exclude, "exporter": exporter, "opset": opset, "image_size": image_size,
            "branches": branches, "registry": registry, "example": example, **options,
        }  # fmt: skip
        self._entered: list[Patched] = []

    def __enter__(self) -> Patched:
        self._entered.append(_planned(self._model, **self._options))  # noted before anything is applied
        return self._entered[-1]._start(alone=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    def __del__(self) -> None:
        while getattr(self, "_entered", None):  # __del__ is called where __init__ raised, too
            self._leave()

    def _leave(self) -> None:
        try:
            self._entered[-1].restore()
        finally:
            self._entered[-1].restore()  # what an interrupt left of it; nothing otherwise
            self._entered.pop()


def asked_by_with(caller: FrameType | None) -> bool:
    """Whether the call that `caller` makes is entered at once: `with f():`. False where the bytecode is not known."""
    if caller is None:
        return False
    later = (one.opname for one in dis.get_instructions(caller.f_code) if one.offset > caller.f_lasti)
    following = list(itertools.islice(later, 2))
    return following[:1] in ([name] for name in _ENTERED) or following == ["COPY", "LOAD_SPECIAL"]  # 3.14
