"""The model that a command works on: `package.module:factory` or `script.py:callable`, loaded and called."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.inputs.example import Brought, brought_by

_FORM = "package.module:factory or script.py:factory, where factory makes a torch.nn.Module"


@dataclass
class Target:
    """A model in eval mode, and the example and shapes that came with it (None: none came)."""

    name: str
    model: torch.nn.Module
    brought: Brought | None


def load(text: str) -> Target:
    """Load and call what `text` names; a call may be written out with literals: `timm:create_model('vit_tiny')`.

    torch's random seed is 0 when the factory runs, so that random weights are the same in the next command.

    The factory returns the model, or (model, args), (model, args, kwargs), or a dict of `model` and any of args,
    kwargs, dynamic_shapes, input_names, output_names. Raises InputError: nothing there, or the factory raised.
    """
    place, colon, rest = text.partition(":")
    if not colon or not place or not rest:
        raise InputError(f"{text!r} names no model: write {_FORM}")
    module = _module(place)
    name, args, kwargs = _call(text, rest)
    try:
        found = functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        raise InputError(f"{place} has no {name!r}; it has {_names(module)}") from None
    made = found if isinstance(found, torch.nn.Module) else _made(text, found, args, kwargs)
    return _target(text, made)


def _module(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise InputError(f"{place}: there is no such file")
    if not is_file and not all(part.isidentifier() for part in place.split(".")):
        raise InputError(f"{place!r} is neither a module nor a .py file: write {_FORM}")
    try:
        return _script(Path(place)) if is_file else _package(place)
    except ModuleNotFoundError as error:
        if error.name and place.startswith(error.name):
            raise InputError(f"no module named {error.name!r}: install it, or start from the folder it is in") from None
        raise InputError(_raised(place, "importing it", error)) from error
    except (Exception, SystemExit) as error:
        raise InputError(_raised(place, "importing it", error)) from error


def _script(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up by name
    spec.loader.exec_module(module)
    return module


def _package(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _call(text: str, rest: str) -> tuple[str, list[Any], dict[str, Any]]:
    """`factory`, or `factory(1, size=2)` with literals only."""
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
            f"{text!r}: between the parentheses only literals may stand, such as ('tiny', size=4)"
        ) from None


def _made(text: str, found: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not callable(found):
        raise InputError(f"{text} is a {type(found).__name__}: name {_FORM}")
    torch.manual_seed(0)
    try:
        return found(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise InputError(_raised(text, "the factory", error)) from error


def _target(text: str, made: Any) -> Target:
    brought: Brought | None = None
    if isinstance(made, Mapping) and "model" in made:
        unknown = set(made) - {"model", *Brought.__dataclass_fields__}
        if unknown:
            raise InputError(f"{text} returned a dict with {', '.join(map(repr, sorted(unknown)))}, which is not known")
        brought = Brought(**{key: value for key, value in made.items() if key != "model"})
        made = made["model"]
    elif isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        brought, made = Brought(*made[1:3]), made[0]
    if not isinstance(made, torch.nn.Module):
        raise InputError(f"{text} returned a {type(made).__name__}: it must return a torch.nn.Module")
    return Target(text, made.eval(), brought or brought_by(made))


def _raised(what: str, doing: str, error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if "onnxpatch/cli" not in frame.filename and "importlib" not in frame.filename]
    at = f" at {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
    return f"{what}: {doing} raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{at}"


def _names(module: ModuleType) -> str:
    own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return ", ".join(own[:12]) or "no callable at all"
