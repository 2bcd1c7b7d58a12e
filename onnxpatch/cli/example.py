"""The example call of a target: from `--input` and `--dynamic`, or as the factory or the model brings it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from onnxpatch.cli.arrays import Array, Sizes, read
from onnxpatch.cli.options import names
from onnxpatch.cli.target import Target
from onnxpatch.errors import InputError
from onnxpatch.inputs.example import Brought
from onnxpatch.inputs.leaves import Inputs, signature

_FREE = re.compile(r"(?P<name>[^=\[]+)=?\[(?P<dims>[^\]]*)\]")


def example(
    target: Target,
    inputs: Sequence[str],
    dynamic: Sequence[str],
    image_size: tuple[int, int] | None = None,
    input_names: str | None = None,
) -> Brought:
    """args, kwargs and dynamic_shapes to export `target` with. input_names: as the option has them, in place of the
    model's own. Raises InputError where there is no example."""
    sizes = Sizes(image_size)
    arrays = [array for text in inputs for array in read(text, sizes)]
    found = _called(target.model, arrays) if arrays else target.brought
    if found is None:
        if _takes_arguments(target.model):
            raise InputError(
                f"{target.name} brings no example: give --input name=float32[2,3,H,W], or have the factory return "
                f"(model, args); forward takes {_parameters(target.model)}"
            )
        found = Brought()
    for text in dynamic:
        _free(found, target.model, text)
    found.input_names = names([input_names or ""]) or found.input_names
    return found


def _called(model: torch.nn.Module, arrays: Iterable[Array]) -> Brought:
    """Arguments by name, those that lead the signature by position; `xs.0` and `batch.mask` fill containers."""
    values: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for array in arrays:
        head, *path = array.name.split(".")
        _put(values, [head, *path], array.value)
        _put(shapes, [head, *path], array.free or None)
    values, shapes = ({k: _listed(v) for k, v in held.items()} for held in (values, shapes))
    args, kwargs = _arranged(model, values)
    return Brought(args, kwargs, shapes if any(array_free(s) for s in shapes.values()) else None)


def array_free(shape: Any) -> bool:
    """Whether anything in these dynamic shapes is free."""
    if isinstance(shape, dict):
        return any(array_free(v) if isinstance(v, dict | list | tuple) else v is not None for v in shape.values())
    return any(array_free(v) for v in shape) if isinstance(shape, list | tuple) else False


def _put(held: dict[str, Any], path: list[str], value: Any) -> None:
    for key in path[:-1]:
        held = held.setdefault(key, {})
        if not isinstance(held, dict):
            raise InputError(f"--input {'.'.join(path)}: {key} is a tensor already")
    if path[-1] in held:
        raise InputError(f"--input {'.'.join(path)} is given twice")
    held[path[-1]] = value


def _listed(value: Any) -> Any:
    """{'0': a, '1': b} is the list [a, b]."""
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        return value
    if all(key.isdigit() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(held) for key, held in value.items()}


def _arranged(model: torch.nn.Module, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sig = signature(model)
    if sig is None:
        return tuple(values.values()), {}
    parameters = list(sig.parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters) and not set(values) & set(sig.parameters):
        return tuple(values.values()), {}
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        unknown = [name for name in values if name not in sig.parameters]
        if unknown:
            raise InputError(f"forward has no argument {unknown[0]!r}; it takes {_parameters(model)}")
    args: list[Any] = []
    for parameter in parameters:
        if parameter.name not in values or parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            break
        args.append(values.pop(parameter.name))
    return tuple(args), values


def _free(found: Brought, model: torch.nn.Module, text: str) -> None:
    """`--dynamic x=[B,_,H,W]`: names for the axes that may change, anything that is no name for those that may not."""
    match = _FREE.fullmatch(text.replace(" ", ""))
    if match is None:
        raise InputError(f"--dynamic {text!r}: write name=[B,_,H,W], a name for each axis that may change")
    arguments = Inputs(model, found.args, found.kwargs).arguments
    name, dims = match["name"], match["dims"].split(",")
    if name not in arguments:
        raise InputError(f"--dynamic {text!r}: the call gives no {name!r}, only {', '.join(arguments) or 'nothing'}")
    value = arguments[name]
    if not isinstance(value, torch.Tensor) or value.dim() != len(dims):
        told = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
        raise InputError(f"--dynamic {text!r}: {name} is {told}: name {len(dims)} axes of a tensor with as many")
    free = {axis: dim for axis, dim in enumerate(dims) if dim.isidentifier() and dim != "_"}
    found.dynamic_shapes = {**_by_name(found.dynamic_shapes, arguments), name: free or None}


def _by_name(shapes: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    held = dict(zip(arguments, shapes, strict=False)) if isinstance(shapes, tuple | list) else dict(shapes or {})
    return {name: held.get(name) for name in arguments}


def _takes_arguments(model: torch.nn.Module) -> bool:
    sig = signature(model)
    return sig is not None and any(p.default is p.empty for p in sig.parameters.values())


def _parameters(model: torch.nn.Module) -> str:
    sig = signature(model)
    return ", ".join(sig.parameters) if sig is not None and sig.parameters else "none"
