"""The mixins that `patched` puts in front of classes: by the exporter that runs they decide whose code runs.

The root, that is the model itself:

    model(x), no exporter       the model's own code
    torch.onnx.export(model)    patches act; stored tensors and stand-in values in the output are made plain tensors

A stand-in's methods run
under the exporters that its patch names; else the module runs its own. The generated class looks like this; `Guard` has
a method for each one that the stand-in overrides:

    class Layer(Guard, StandIn, Layer): ...        # module.__class__ while it is patched

    class Guard:
        def forward(self, *args, **kwargs):        # an exporter runs: StandIn.forward, else Layer.forward

torch.jit.script does not call methods, it compiles their source. It reads that of `__wrapped__`, which is the
stand-in's method.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from onnxpatch._torch import exporting, pytree
from onnxpatch._torch.guards import drop_unsolvable_guards
from onnxpatch.errors import OnnxpatchError, RefusedError
from onnxpatch.formulas.resize import check_example
from onnxpatch.patching import runtime as scopes
from onnxpatch.patching.forward_state import restorer_of_objects
from onnxpatch.patching.generated import mixins_of
from onnxpatch.patching.registry import Patch
from onnxpatch.patching.runtime import Scope
from onnxpatch.patching.swap import UndoLog

_NEVER = ("onnxpatch_prepare", "__init__")
Acted = Callable[[str], None]
_ASKED = "type(layer) in the model's code would be the class of a stand-in under torch.export(strict=True)"


def export_only(patch: Patch, written: type, acted: Acted) -> type:
    """The stand-in of `patch` as a mixin whose methods act while one of its exporters runs.

    written: the class as the user wrote it, whose methods run otherwise. acted: called with the patch's name each time
    a method of the stand-in runs.
    """
    stand_in = patch.stand_in
    # What the written class does not have is called by the stand-in alone, and needs no guard.
    names = {
        name: _shown(_guarded(patch, name, value, acted), value, written)
        for name, value in _members(stand_in)
        if hasattr(written, name) or isinstance(value, property)
    }
    about = {name: getattr(stand_in, name) for name in ("__module__", "__qualname__", "__doc__")}
    guard = type(stand_in.__name__, (stand_in,), {**about, **names})
    # `super(guard, self)` in the methods needs the class that has just been made of them.
    for value in names.values():
        _cell(value).cell_contents = guard
    return guard


def _shown(method: Any, value: object, written: type) -> Any:
    """The method, with the parameters of the one it stands in for where it takes any: exporters name inputs by them."""
    if inspect.isfunction(value) and [*inspect.signature(value).parameters] == ["self", "args", "kwargs"]:
        method.__signature__ = inspect.signature(getattr(written, value.__name__))
    return method


def _members(stand_in: type) -> Iterator[tuple[str, Any]]:
    seen = set(_NEVER)
    for cls in stand_in.__mro__[:-1]:
        for name, value in vars(cls).items():
            # Python finds the first in the order of the bases: later ones are overridden.
            if name not in seen and (callable(value) or isinstance(value, property)):
                seen.add(name)
                yield name, value


def _cell(value: object) -> types.CellType:
    function: Any = value.fget if isinstance(value, property) else value
    place = function.__code__.co_freevars.index("onnxpatch_guard")
    return cast(types.CellType, function.__closure__[place])


def _guarded(patch: Patch, name: str, value: object, acted: Acted) -> object:
    # The last class of the stand-in before `object`: after it in the module's __mro__ comes what ran before the patch.
    last = patch.stand_in.__mro__[-2]
    if isinstance(value, property):
        return _guarded_property(patch, name, last)
    return _callable_by_script(_guarded_method(patch, name, last, acted), value)


def _guarded_method(
    patch: Patch,
    name: str,
    onnxpatch_last: type,
    onnxpatch_acted: Acted,
    onnxpatch_guard: object = None,
    # Everything that the method uses is in its closure, since it gets the globals of the stand-in for torch.jit.script.
    onnxpatch_exporting: Callable[[], str | None] = exporting,
) -> Callable[..., Any]:
    onnxpatch_exporters, onnxpatch_patch, onnxpatch_name = patch.when.exporters, patch.name, name

    def method(self: Any, *args: object, **kwargs: object) -> Any:
        if onnxpatch_exporting() in onnxpatch_exporters:
            found = getattr(super(onnxpatch_guard, self), onnxpatch_name)(*args, **kwargs)
            # A stand-in that declines did nothing: the method before it runs, and no act is counted.
            if found is not NotImplemented:
                onnxpatch_acted(onnxpatch_patch)
                return found
        return getattr(super(onnxpatch_last, self), onnxpatch_name)(*args, **kwargs)

    return method


def _callable_by_script(method: Any, value: object) -> Any:
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if not inspect.isfunction(function):
        return method
    known = dict(function.__globals__)
    if function.__closure__:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            # `__class__` is the cell of a super() without arguments, and no name in the code.
            if name != "__class__":
                known[name] = cell.cell_contents
    there = types.FunctionType(
        method.__code__, known if function.__closure__ else function.__globals__, function.__name__, None,
        method.__closure__,
    )  # fmt: skip
    return functools.wraps(function)(there)


def eager_forward(own: Any, new: Any, exporters: tuple[str, ...]) -> type:
    """A mixin for a module that was replaced by `new`: it calls the forward of `own` while none of `exporters` runs."""
    onnxpatch_exporting, onnxpatch_own, onnxpatch_exporters = exporting, own, exporters

    class Replaced:
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            if onnxpatch_exporting() in onnxpatch_exporters:
                return super().forward(*args, **kwargs)  # type: ignore[misc]
            return onnxpatch_own.forward(*args, **kwargs)

    Replaced.forward = _callable_by_script(Replaced.forward, type(new).forward)  # type: ignore[method-assign]
    return Replaced


def _guarded_property(patch: Patch, name: str, last: type) -> property:
    onnxpatch_guard: Any = None

    def read(self: Any) -> object:
        if exporting() in patch.when.exporters:
            return getattr(super(onnxpatch_guard, self), name)
        return vars(self)[name] if name in vars(self) else getattr(super(last, self), name)

    # A property goes before the instance's attribute: without a setter, the model could not assign that any more.
    def write(self: Any, value: object) -> None:
        vars(self)[name] = value

    return property(read, write)


def replace_in_place(module: torch.nn.Module, patch: Patch, log: UndoLog) -> None:
    """Give the module the class and attributes of a new one. It stays the same object, for lists and aliases.

    While no exporter runs, it calls the forward of the original.
    """
    new = patch.stand_in(module)
    before, cls = vars(module), type(module)
    # A second object with the old class and the old attributes: its forward is what runs in eager.
    own = cls.__new__(cls)
    own.__dict__ = before
    # Hooks were registered on the module by its user, and stay whatever its class is.
    hooks = {name: value for name, value in before.items() if "_hooks" in name}

    def undo() -> None:
        module.__dict__, module.__class__ = before, cls

    log.call(undo)  # before anything changes: an interrupt may come between any two lines
    new.train(module.training)  # a new module is in training mode
    module.__dict__ = {**vars(new), **hooks}
    module.__class__ = type(new)
    log.specialise(module, eager_forward(own, new, patch.when.exporters))


def _tensors_of(state: dict[str, Any]) -> dict[str, Any]:
    """A model's state, for the trace exporter without what is no tensor, as from get_extra_state: it detaches all."""
    if torch.onnx.is_in_onnx_export():
        for name in [name for name, held in state.items() if not isinstance(held, torch.Tensor)]:
            del state[name]
    return state


def root_mixin(scope: Scope) -> type:
    """The mixin of the patched model itself. While an exporter runs it, the patches of `scope` act."""

    class Root:
        onnxpatch_scope = scope

        def state_dict(self, *args: object, **kwargs: object) -> Any:
            return _tensors_of(super().state_dict(*args, **kwargs))  # type: ignore[misc]

        def __call__(self, *args: object, **kwargs: object) -> Any:
            exporter = exporting()
            if exporter is None:
                # torch.onnx.export tries strict=True where the first try failed. No patch acts there: what was
                # refused would come out as a plain export without an error.
                if torch.compiler.is_dynamo_compiling():
                    if scope.refused:
                        raise RefusedError(scope.refused)
                    # The names are not exchanged there, since Dynamo cannot trace that.
                    if scope.shows_stand_ins:
                        raise RefusedError(_ASKED)
                    return super().__call__(*args, **kwargs)  # type: ignore[misc]
                with scope.types_as_written():
                    return super().__call__(*args, **kwargs)  # type: ignore[misc]
            scope.refused = ""
            try:
                if scope.settings.image_size is not None:
                    check_example(scope.settings.image_size, (args, kwargs))
                # What the call keeps on the model, torch.export would compare with the example's, or write back.
                put_back = restorer_of_objects(self) if exporter == "dynamo" else None  # type: ignore[arg-type]
                with scope.entered(self):  # type: ignore[arg-type]
                    output = super().__call__(*args, **kwargs)  # type: ignore[misc]
                    if put_back is not None:
                        put_back()
                        # At the end, when the guards of the whole forward are there.
                        drop_unsolvable_guards()
                    output = _copy_stored_tensors(output, self) if exporter == "trace" else output
            except OnnxpatchError as refusal:
                scope.refused = str(refusal)
                raise
            # Inside another patched model its patches go on with these values.
            if scopes.running_model() is not None:
                return output
            output = _unwrap_outputs(output)
            if exporter == "trace":
                from onnxpatch._torch.traced_writes import write_out

                returned = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
                write_out(returned, every=scope.settings.branches)
            return output

    return Root


def watched_functions(model: torch.nn.Module) -> set[str]:
    """The names of the function patches that already act in `model`, from a `patched` around this one."""
    scopes_here = [vars(mixin).get("onnxpatch_scope") for mixin in mixins_of(type(model))]
    return {name for scope in scopes_here if scope is not None for name in scope.watched}


def _unwrap_outputs(output: object) -> object:
    """`output` with a tensor in place of each value that patches computed with instead: those that have an
    `onnxpatch_output()`, such as a complex tensor kept as a pair."""
    if not any(map(_is_wrapped, pytree.tree_leaves(output))):
        return output
    return pytree.tree_map(lambda leaf: leaf.onnxpatch_output() if _is_wrapped(leaf) else leaf, output)


def _is_wrapped(leaf: object) -> bool:
    return hasattr(type(leaf), "onnxpatch_output")


def _copy_stored_tensors(output: object, model: Any) -> object:
    """`output` with copies of the model's buffers and parameters: the tracer refuses an output that no operation
    made."""
    stored = {id(tensor) for group in (model.buffers(), model.parameters()) for tensor in group}
    return pytree.tree_map(lambda leaf: leaf.clone() if id(leaf) in stored else leaf, output)
