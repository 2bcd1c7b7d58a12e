"""Makes a module of what callers pass as a model: a captured program, a function, a method (`modules.as_module` asks).
Finds the example that a model declares itself, for calls without arguments.

An example is looked for in this order: `torch.onnx.ExportableModule` (its `example_arguments()`), then `example_inputs`
(timm and others), `dummy_inputs` (transformers), `example_input_array` (Lightning); each may be an attribute or a
method.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from onnxpatch._torch import pytree
from onnxpatch.inputs.dynamic_shapes import ShapesSpec
from onnxpatch.inputs.leaves import ExampleArgs, Kwargs, signature
from onnxpatch.messages.user_code import names_within

FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


# ------------------------------------------------------------------ captured programs
def of_program(program: Any) -> nn.Module:
    module: Any = around_program(program.module())
    args, kwargs = program.example_inputs or ((), {})
    module.example_arguments = lambda: (args, kwargs)
    module.dynamic_shapes = lambda: _program_shapes(program)
    return module


def around_program(graph: Any) -> _Called:
    taken = inspect.signature(getattr(graph, "_orig_mod", graph).forward)
    spec = getattr(graph, "_in_spec", None)
    keywords = pytree.tree_unflatten([None] * spec.num_leaves, spec)[1] if spec is not None else {}

    def call(*args: Any, **kwargs: Any) -> Any:
        # The program refuses an argument that it was captured with as a keyword in any other form.
        given = taken.bind(*args, **kwargs).arguments if keywords else {}
        named = {name: given.pop(name) for name in keywords if name in given}
        return graph(*given.values(), **named) if keywords else graph(*args, **kwargs)

    return _called(graph.forward, call, {"program": graph})


def _program_shapes(program: Any) -> dict[str, Any] | None:
    """The program's own dynamic sizes by argument; None where all are fixed, or where an argument is a container."""
    tensors = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    shapes: dict[str, Any] = {}
    for name in program.graph_signature.user_inputs:
        sizes = enumerate(getattr(tensors.get(name), "shape", ()))
        shapes[name] = {axis: str(size).lower() for axis, size in sizes if not isinstance(size, int)}
    return shapes if any(shapes.values()) else None


# ------------------------------------------------------------------ functions
class _Called(nn.Module):
    """A function as a module. parts: the modules that it reaches."""

    def __init__(self, function: Callable[..., Any], parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)


def calling(function: Any) -> _Called:
    return _called(function, _by_attribute(function), _parts(function))


def _called(function: Any, call: Callable[..., Any], parts: Mapping[str, nn.Module]) -> _Called:
    """function: what it is named after, and whose parameters it has; call: what it calls."""

    def forward(self: _Called, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    # The exporters name inputs after the parameters of forward.
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    forward.__signature__ = inspect.Signature([me, *_parameters(function)])  # type: ignore[attr-defined]
    made: _Called = type(_name(function), (_Called,), {"forward": forward})(call, parts)
    made.training = any(part.training for part in parts.values())
    return made


def _parameters(function: Any) -> list[inspect.Parameter]:
    """Those that a call gives: without what a partial has bound, and without modules as defaults."""
    bound = function.keywords if isinstance(function, functools.partial) else {}
    every = inspect.signature(function).parameters.values()
    return [one for one in every if one.name not in bound and not isinstance(one.default, nn.Module)]


def _by_attribute(function: Any) -> Any:
    """A bound method that is looked up at each call: while its module is patched, it is another one."""
    name = getattr(function, "__name__", "")
    if isinstance(function, types.MethodType) and getattr(function.__self__, name, None) == function:
        return lambda *args, **kwargs: getattr(function.__self__, name)(*args, **kwargs)
    if isinstance(function, functools.partial):
        return functools.partial(_by_attribute(function.func), *function.args, **function.keywords)
    return function


def _name(function: Any) -> str:
    """A name for the class, as reports show it: Model_encode."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    own = getattr(function, "__name__", type(function).__name__)
    text = own if owner is None or isinstance(owner, types.ModuleType) else f"{type(owner).__name__}_{own}"
    return re.sub(r"\W+", "_", text).strip("_") or "function"


def _parts(function: object) -> dict[str, nn.Module]:
    """The modules that a function reaches, by name; those inside others are left out."""
    found: dict[int, tuple[str, nn.Module]] = {}
    for name, module in _reached(function, set()):
        found.setdefault(id(module), (name, module))
    inside = {id(one) for _, module in found.values() for one in module.modules() if one is not module}
    parts: dict[str, nn.Module] = {}
    for name, module in (one for key, one in found.items() if key not in inside):
        own = re.sub(r"\W+", "_", name)
        own = f"{own}_" if not own or hasattr(_Called, own) or own == "function" else own
        parts[own if own not in parts else f"{own}_{len(parts)}"] = module
    return parts


def _reached(value: object, seen: set[int], name: str = "model") -> Iterator[tuple[str, nn.Module]]:
    """Modules that a value is, that a function uses, or that an object or container holds."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, nn.Module):
        yield name, value
        return
    for key, inner in _held(value):
        yield from _reached(inner, seen, key)


def _used(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """What a function's code may read: its closure, its defaults, and the globals that it names."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, cell.cell_contents) for name, cell in cells if cell != types.CellType())
    yield from (("model", one) for one in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    names = names_within(function.__code__)
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


def _held(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, functools.partial):
        yield from [("model", value.func), *(("argument", one) for one in value.args), *value.keywords.items()]
    elif isinstance(value, types.MethodType):
        owner = value.__self__  # of a classmethod the class
        yield from vars(owner).items() if isinstance(owner, type) else [("model", owner)]
        yield "function", value.__func__
    elif isinstance(value, types.FunctionType):
        yield from _used(value)
    elif isinstance(value, Mapping):
        yield from ((str(key), one) for key, one in value.items())
    elif isinstance(value, list | tuple):
        yield from (("model", one) for one in value)
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType | torch.Tensor):
        yield from vars(value).items()


_ATTRIBUTES = ("example_inputs", "dummy_inputs", "example_input_array")


@dataclass
class ModelExample:
    """An example call, and what else the model declares about its export. None: the model says nothing about it."""

    args: ExampleArgs = ()
    kwargs: Kwargs | None = None
    dynamic_shapes: ShapesSpec = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


def declared_example(model: torch.nn.Module) -> ModelExample | None:
    """The example that `model` declares, or None. Methods are called, attributes read; what they raise passes."""
    sig = signature(model)
    # A forward without arguments needs no example.
    if sig is None or not sig.parameters:
        return None
    if callable(getattr(model, "example_arguments", None)):
        return _from_exportable_module(model)
    for name in _ATTRIBUTES:
        example = _read_or_call(model, name)
        if example is not None:
            return ModelExample((), example) if isinstance(example, Mapping) else ModelExample(example)
    return None


def _from_exportable_module(model: object) -> ModelExample:
    args, kwargs = model.example_arguments()  # type: ignore[attr-defined]  # the caller has looked
    shapes, input_names, output_names = (
        _read_or_call(model, name) if callable(getattr(model, name, None)) else None
        for name in ("dynamic_shapes", "input_names", "output_names")
    )
    return ModelExample(args, kwargs, shapes, input_names, output_names)


def _read_or_call(model: object, name: str) -> Any:
    value = getattr(model, name, None)
    return value() if callable(value) else value
