"""The model that a command works on, and its example call.

A target is `package.module:factory` or `script.py:factory`. The factory is called with the literals that are written
after it, as in `timm:create_model('vit_tiny_patch16_224')`. It returns the model, or (model, args), (model, args,
kwargs), or a dict of `model` and any of args, kwargs, dynamic_shapes, input_names, output_names.

The example is the factory's, the model's own, or made of `--input` and `--dynamic`: `--input 'xs.0=float32[B,4]'
--input 'xs.1=float32[B,4]' --input 'batch.mask=bool[B]'` is the call `model([x0, x1], {"mask": m})` with dynamic_shapes
`{"xs": [{0: "B"}, {0: "B"}], "batch": {"mask": {0: "B"}}}`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import torch

from onnxpatch.cli.arrays import Array, read_inputs
from onnxpatch.cli.options import names
from onnxpatch.errors import InputError
from onnxpatch.inputs.dynamic_shapes import ShapesSpec
from onnxpatch.inputs.given_model import ModelExample, declared_example
from onnxpatch.inputs.leaves import Inputs, signature

_FORM = "package.module:factory or script.py:factory, where factory() returns a torch.nn.Module"
_Call: TypeAlias = tuple[str, list[object], dict[str, object]]  # the factory's name, and its arguments


@dataclass
class _LoadedTarget:
    """A model in eval mode, with the example that the factory returned or the model declares, if there is one."""

    name: str
    model: torch.nn.Module
    example: ModelExample | None


def load(text: str) -> _LoadedTarget:
    """The model that `text` names, and its example.

    torch's random seed is 0 when the factory runs, so that random weights are the same in the next command.
    Raises InputError where there is nothing of that name, or the import or the factory raises.
    """
    place, colon, rest = text.partition(":")
    if not colon or not place or not rest:
        raise InputError(f"{text!r} does not name a model: write {_FORM}")
    module = _module(place)
    name, args, kwargs = _parse_call(text, rest)
    try:
        factory: object = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        raise InputError(f"{place} has no {name!r}; it has {_names(module)}") from None
    # A module can be called as well; it is the model already.
    result = factory if isinstance(factory, torch.nn.Module) else _call_factory(text, factory, args, kwargs)
    return _target(text, result)


def load_patches(places: Iterable[str]) -> None:
    """Import modules that declare patches: `package.module` or `script.py`."""
    for place in places:
        _module(place)


def _module(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise InputError(f"{place}: there is no such file")
    if not is_file and not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"{place!r} is neither a module nor a .py file: write {_FORM}")
    try:
        return _script(Path(place)) if is_file else _package(place)
    except ModuleNotFoundError as error:
        # Any other module that is missing is one that the user's own code imports: that import is at fault.
        if error.name and place.startswith(error.name):
            raise InputError(f"no module named {error.name!r}: install it, or start from the folder it is in") from None
        raise InputError(_raised(place, "importing it", error)) from error
    # A script may end itself by sys.exit, without `if __name__ == "__main__"`.
    except (Exception, SystemExit) as error:
        raise InputError(_raised(place, "importing it", error)) from error


def _script(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))  # it may import its neighbours, as under `python script.py`
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up by name
    spec.loader.exec_module(module)
    return module


def _package(name: str) -> ModuleType:
    if "" not in sys.path:  # the current folder, which a console script does not have, unlike `python -m`
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _parse_call(text: str, rest: str) -> _Call:
    """The parts of `factory`, or of `factory(1, size=2)` with literals only."""
    if "(" not in rest:
        return rest, [], {}
    try:
        tree = ast.parse(rest, mode="eval").body
        if not isinstance(tree, ast.Call):
            raise ValueError
        args = [ast.literal_eval(arg) for arg in tree.args]
        return ast.unparse(tree.func), args, {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
    except (SyntaxError, ValueError):
        raise InputError(
            f"{text!r}: only literals are allowed between the parentheses, such as ('tiny', size=4)"
        ) from None


def _call_factory(text: str, factory: object, args: list[object], kwargs: dict[str, object]) -> object:
    if not callable(factory):
        raise InputError(f"{text} is a {type(factory).__name__}: name {_FORM}")
    torch.manual_seed(0)
    try:
        return factory(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise InputError(_raised(text, "the factory", error)) from error


def _target(text: str, result: object) -> _LoadedTarget:
    """The model and the example in what a factory returned."""
    model, example = result, None
    if isinstance(result, Mapping) and "model" in result:
        fields = ("model", *ModelExample.__dataclass_fields__)
        unknown = set(result) - set(fields)
        if unknown:
            raise InputError(
                f"{text} returned a dict with {', '.join(map(repr, sorted(unknown)))}; the keys are {', '.join(fields)}"
            )
        model = result["model"]
        example = ModelExample(**{key: value for key, value in result.items() if key != "model"})
    elif isinstance(result, tuple) and result and isinstance(result[0], torch.nn.Module):
        model, example = result[0], ModelExample(*result[1:3])
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{text} returned a {type(model).__name__}: it must return a torch.nn.Module")
    return _LoadedTarget(text, model.eval(), example or declared_example(model))


def _raised(what: str, doing: str, error: BaseException) -> str:
    """The message for an import or a factory that raised, with the innermost line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost line that is neither this command's nor the import system's: the user's, or a library's below it.
    outside = [frame for frame in frames if "onnxpatch/cli" not in frame.filename and "importlib" not in frame.filename]
    at = f" at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
    return f"{what}: {doing} raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{at}"


def _names(module: ModuleType) -> str:
    own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return ", ".join(own[:12]) or "nothing that can be called"


_DYNAMIC = re.compile(r"(?P<name>[^=\[]+)=?\[(?P<dims>[^\]]*)\]")


def example(
    target: _LoadedTarget,
    inputs: Sequence[str],
    dynamic: Sequence[str],
    image_size: tuple[int, int] | None = None,
    input_names: str | None = None,
) -> ModelExample:
    """args, kwargs, dynamic_shapes and input names for a target.

    inputs, dynamic: the texts of `--input` and `--dynamic`. input_names: the text of `--input-names`, which goes before
    the names that the model declares. Raises InputError where there is no example, or an option is not understood.
    """
    arrays = read_inputs(inputs, image_size)
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
    call = _from_inputs(model, read_inputs([str(file)]))
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
