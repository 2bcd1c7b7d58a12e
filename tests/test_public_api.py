"""The public names, with their signatures, are those of tests/snapshots/public_api.txt."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import onnxpatch
import onnxpatch.html
import onnxpatch.testing
import pytest_onnxpatch

# What README and docs name besides onnxpatch.__all__; what a name's own module is called is not part of it.
OTHER_MODULES = (onnxpatch.testing, onnxpatch.html, pytest_onnxpatch)


def test_public_names_and_signatures_are_the_committed_ones(same_as_snapshot):
    lines = [line for name in sorted(onnxpatch.__all__) for line in described(name, getattr(onnxpatch, name))]
    for module in OTHER_MODULES:
        lines += ["", f"[{module.__name__}]"]
        lines += [line for name, value in own_names(module) for line in described(name, value)]
    lines += ["", "[in fields of these]"]
    lines += [line for name, value in reached() for line in described(name, value)]
    same_as_snapshot("public_api.txt", "\n".join(["[onnxpatch]", *lines]) + "\n")


def own_names(module: Any) -> list[tuple[str, Any]]:
    """The functions and classes that a module defines itself; pytest's hooks are functions too."""
    defined = [pair for pair in vars(module).items() if getattr(pair[1], "__module__", None) == module.__name__]
    return sorted((name, value) for name, value in defined if not name.startswith("_") and callable(value))


def described(name: str, value: Any) -> Iterator[str]:
    """A function: its signature. A class: its bases, fields and public methods. Anything else: its type."""
    if inspect.isclass(value):
        yield from class_lines(name, value)
    elif callable(value):
        yield f"{name}{signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def class_lines(name: str, cls: type) -> Iterator[str]:
    bases = [base.__name__ for base in cls.__bases__ if base is not object and is_public(base)]
    yield f"class {name}" + (f" is {', '.join(bases)}" if bases else "") + signature(cls).removesuffix(" -> None")
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if not field.init and not field.name.startswith("_"):
            yield f"    field {field.name}: {plain(field.type)}"
    for attribute in sorted(public_attributes(cls)):
        yield f"    {member(attribute, inspect.getattr_static(cls, attribute))}"


def is_public(cls: type) -> bool:
    return not of_the_kit(cls) or cls.__name__ in onnxpatch.__all__


def of_the_kit(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "onnxpatch"


def reached() -> list[tuple[str, type]]:
    """Dataclasses that are no public names, but what a field of a public dataclass holds, such as a report's checks."""
    waiting = [value for name in onnxpatch.__all__ if dataclasses.is_dataclass(value := getattr(onnxpatch, name))]
    found: dict[str, type] = {}
    while waiting:
        for hint in typing.get_type_hints(waiting.pop()).values():
            for cls in filter(dataclasses.is_dataclass, parts(hint)):
                if of_the_kit(cls) and cls.__name__ not in {*found, *onnxpatch.__all__}:
                    found[cls.__name__] = cls
                    waiting.append(cls)
    return sorted(found.items())


def parts(hint: Any) -> Iterator[Any]:
    """A type hint and everything inside of its brackets."""
    yield hint
    for inner in typing.get_args(hint):
        yield from parts(inner)


def public_attributes(cls: type) -> set[str]:
    """What the kit's own classes define: not what torch.nn.Module, Exception or object bring."""
    kit = [base for base in cls.__mro__ if of_the_kit(base)]
    names = {name for base in kit for name, value in vars(base).items() if is_method(value)}
    special = {
        "__init__",
        "__repr__",
        "__str__",
        "__eq__",
        "__hash__",
        "__setattr__",
        "__delattr__",
        "__replace__",
        "__post_init__",
    }
    return {name for name in names if not name.startswith("_") or (name.startswith("__") and name not in special)}


def is_method(value: Any) -> bool:
    return isinstance(value, property | functools.cached_property | staticmethod | classmethod) or inspect.isfunction(
        value
    )


def member(name: str, value: Any) -> str:
    if isinstance(value, property | functools.cached_property):
        read = value.func if isinstance(value, functools.cached_property) else value.fget
        assert read is not None
        return f"property {name}{signature(read)}"
    if isinstance(value, staticmethod | classmethod):
        return f"{type(value).__name__} {name}{signature(value.__func__)}"
    return f"def {name}{signature(value)}"


def signature(function: Callable[..., Any]) -> str:
    """Parameters with kinds, annotations and defaults; nothing where Python's own code makes the instance."""
    if inspect.isclass(function) and not inspect.isfunction(function.__init__):
        return ""
    read = inspect.signature(function)
    shown = [shown_parameter(parameter) for parameter in read.parameters.values()]
    kinds = [parameter.kind for parameter in read.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    positional_only = kinds.count(inspect.Parameter.POSITIONAL_ONLY)
    if positional_only:
        shown.insert(positional_only, "/")
    result = read.return_annotation
    returned = "" if result is inspect.Signature.empty else f" -> {plain(result)}"
    return f"({', '.join(shown)}){returned}"


def shown_parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotated = "" if parameter.annotation is parameter.empty else f": {plain(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {shown_default(parameter.default)}"
    return f"{stars}{parameter.name}{annotated}{default}"


def shown_default(value: Any) -> str:
    """A default as code would have it; objects without a stable text (at an address) by their type."""
    text = repr(value)
    if text == "<factory>":  # of a dataclass's field: called for each instance
        return text
    return f"<{type(value).__name__}>" if " at 0x" in text or text.startswith("<") else text


def plain(annotation: Any) -> str:
    """An annotation without module paths, so that a class may move."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", None) or repr(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text.strip("'\""))


def test_what_is_compared_has_kinds_and_defaults():
    def function(a: onnxpatch.Plan, /, b: int = 1, *rest: str, c: bool = True, **more: Any) -> None: ...

    def keyword_only(*, c: bool) -> None: ...

    assert signature(function) == "(a: Plan, /, b: int = 1, *rest: str, c: bool = True, **more: Any) -> None"
    assert signature(keyword_only) == "(*, c: bool) -> None"
    assert plain("collections.abc.Mapping[str, torch.Tensor]") == "Mapping[str, Tensor]"
    assert plain("dict[str, float]") == "dict[str, float]"


def test_a_missing_name_is_shown_with_how_to_accept_it(pytestconfig, same_as_snapshot):
    if pytestconfig.getoption("--accept"):
        pytest.skip("--accept writes, and compares nothing")
    with pytest.raises(pytest.fail.Exception, match=r"-class Patch\((?s:.)*test_public_api.py --accept"):
        same_as_snapshot("public_api.txt", "[onnxpatch]\n")
