"""The example call for a command: from `--input` and `--dynamic`, or from the factory or the model itself.

`--input 'xs.0=float32[B,4]' --input 'xs.1=float32[B,4]' --input 'batch.mask=bool[B]'` is the call
`model([x0, x1], {"mask": m})` with dynamic_shapes `{"xs": [{0: "B"}, {0: "B"}], "batch": {"mask": {0: "B"}}}`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from onnxpatch.cli.arrays import Array, ExampleSizes, read
from onnxpatch.cli.options import names
from onnxpatch.cli.target import LoadedTarget
from onnxpatch.errors import InputError
from onnxpatch.inputs.dynamic_shapes import ShapesSpec
from onnxpatch.inputs.example import ModelExample
from onnxpatch.inputs.leaves import Inputs, signature

_DYNAMIC = re.compile(r"(?P<name>[^=\[]+)=?\[(?P<dims>[^\]]*)\]")


def example(
    target: LoadedTarget,
    inputs: Sequence[str],
    dynamic: Sequence[str],
    image_size: tuple[int, int] | None = None,
    input_names: str | None = None,
) -> ModelExample:
    """args, kwargs, dynamic_shapes and input names for a target.

    inputs, dynamic: the texts of `--input` and `--dynamic`. input_names: the text of `--input-names`, which goes before
    the names that the model declares. Raises InputError where there is no example, or an option is not understood.
    """
    sizes = ExampleSizes(image_size)
    arrays = [array for text in inputs for array in read(text, sizes)]
    call = _from_inputs(target.model, arrays) if arrays else target.example
    if call is None:
        if _takes_arguments(target.model):
            raise InputError(
                f"{target.name} has no example input: give --input name=float32[2,3,H,W], or have the factory return "
                f"(model, args); forward takes {_parameters(target.model)}"
            )
        call = ModelExample()
    for text in dynamic:
        _apply_dynamic(call, target.model, text)
    call.input_names = names([input_names or ""]) or call.input_names
    return call


def call_from_file(model: torch.nn.Module, file: Path) -> tuple[tuple[object, ...], dict[str, object]]:
    """(args, kwargs) for `--data FILE.npz`: one more call, of arrays named like the arguments."""
    call = _from_inputs(model, read(str(file), ExampleSizes()))
    return tuple(call.args), dict(call.kwargs or {})


def _from_inputs(model: torch.nn.Module, arrays: Iterable[Array]) -> ModelExample:
    """The call that `--input` describes."""
    values: dict[str, object] = {}
    shapes: dict[str, object] = {}
    for array in arrays:
        path = array.name.split(".")
        _put(values, path, array.value)
        _put(shapes, path, array.free or None)
    args, kwargs = _args_and_kwargs(model, {name: _with_lists(value) for name, value in values.items()})
    by_argument = {name: _with_lists(shape) for name, shape in shapes.items()}
    return ModelExample(args, kwargs, by_argument if any(map(_has_names, by_argument.values())) else None)


def _has_names(shape: object) -> bool:
    """Whether any axis in these dynamic shapes has a name."""
    if isinstance(shape, dict):
        return any(_has_names(v) if isinstance(v, dict | list | tuple) else v is not None for v in shape.values())
    return any(_has_names(v) for v in shape) if isinstance(shape, list | tuple) else False


def _put(container: dict[str, object], path: list[str], value: object) -> None:
    """Put a value at `path` in nested dicts, which are made on the way."""
    for key in path[:-1]:
        inner = container.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InputError(f"--input {'.'.join(path)}: {key} is a tensor already")
        container = inner
    if path[-1] in container:
        raise InputError(f"--input {'.'.join(path)} is given twice")
    container[path[-1]] = value


def _with_lists(value: object) -> object:
    """Nested dicts whose keys are numbers as lists: {"0": a, "1": b} is [a, b]."""
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        return value
    if all(key.isdigit() for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _with_lists(inner) for key, inner in value.items()}


def _args_and_kwargs(model: torch.nn.Module, values: dict[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """The values as positional arguments as far as they lead the signature without a gap, the rest by keyword."""
    sig = signature(model)
    if sig is None:
        return tuple(values.values()), {}
    parameters = list(sig.parameters.values())
    # forward(*inputs): the names are the user's own, and their order is all that counts.
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) and not set(values) & set(sig.parameters):
        return tuple(values.values()), {}
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        unknown = [name for name in values if name not in sig.parameters]
        if unknown:
            raise InputError(f"forward has no argument {unknown[0]!r}; it takes {_parameters(model)}")
    args: list[object] = []
    for parameter in parameters:
        if parameter.name not in values or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        args.append(values.pop(parameter.name))
    return tuple(args), values


def _apply_dynamic(call: ModelExample, model: torch.nn.Module, text: str) -> None:
    """Add one `--dynamic x=[B,_,H,W]` to a call. A name: the axis may change; `_`, a number or nothing: it may not."""
    match = _DYNAMIC.fullmatch(text.replace(" ", ""))
    if match is None:
        raise InputError(f"--dynamic {text!r}: write name=[B,_,H,W], a name for each axis that may change")
    arguments = Inputs(model, call.args, call.kwargs).arguments
    name, dims = match["name"], match["dims"].split(",")
    if name not in arguments:
        raise InputError(
            f"--dynamic {text!r}: the call has no argument {name!r}, only {', '.join(arguments) or 'none'}"
        )
    value = arguments[name]
    if not isinstance(value, torch.Tensor) or value.dim() != len(dims):
        kind = f"of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
        raise InputError(f"--dynamic {text!r}: {name} is {kind}: give one entry for each axis of a tensor")
    axes = {axis: dim for axis, dim in enumerate(dims) if dim.isidentifier() and dim != "_"}
    call.dynamic_shapes = {**_by_argument(call.dynamic_shapes, arguments), name: axes or None}


def _by_argument(shapes: ShapesSpec, arguments: Iterable[str]) -> dict[str, ShapesSpec]:
    if isinstance(shapes, tuple | list):
        shapes = dict(zip(arguments, shapes, strict=False))
    if not isinstance(shapes, Mapping | None):
        raise InputError(f"--dynamic needs dynamic_shapes that are a dict or a tuple, not {type(shapes).__name__}")
    return {name: shapes.get(name) if shapes else None for name in arguments}


def _takes_arguments(model: torch.nn.Module) -> bool:
    sig = signature(model)
    return sig is not None and any(p.default is p.empty for p in sig.parameters.values())


def _parameters(model: torch.nn.Module) -> str:
    sig = signature(model)
    return ", ".join(sig.parameters) if sig is not None and sig.parameters else "none"
