"""Loads the model that a command works on, from `package.module:factory` or `script.py:factory`.

The factory is called with the literals that are written after it, as in `timm:create_model('vit_tiny_patch16_224')`.
It returns the model, or (model, args), (model, args, kwargs), or a dict of `model` and any of args, kwargs,
dynamic_shapes, input_names, output_names.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import torch

from onnxpatch.errors import InputError
from onnxpatch.inputs.example import ModelExample, declared_example

_FORM = "package.module:factory or script.py:factory, where factory() returns a torch.nn.Module"
_Call: TypeAlias = tuple[str, list[object], dict[str, object]]  # the factory's name, and its arguments


@dataclass
class LoadedTarget:
    """A model in eval mode, with the example that the factory returned or the model declares, if there is one."""

    name: str
    model: torch.nn.Module
    example: ModelExample | None


def load(text: str) -> LoadedTarget:
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


def _target(text: str, result: object) -> LoadedTarget:
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
    return LoadedTarget(text, model.eval(), example or declared_example(model))


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
