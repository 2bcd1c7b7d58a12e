"""Completion of patch names in a shell. It must not wait for torch: the names are read from the source of the kit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def patch_names(incomplete: str) -> list[str]:
    """The names of the kit's patches that begin with `incomplete`. A user's own patches are not among them."""
    return sorted(name for name in set(_named()) if name.startswith(incomplete))


def _named() -> Iterator[str]:
    installed = Path(__file__).parents[1] / "patches"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "patches"  # a checkout
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        makers = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and _makes_rows(one)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from _declared(node, makers)
            elif isinstance(node, ast.FunctionDef):
                called = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
                if any(isinstance(one, ast.Name) and one.id in makers for one in called):
                    yield node.name.replace("_", "-")


def _makes_rows(function: ast.FunctionDef) -> bool:
    """Whether it declares a row by a name that it is given, as an argument or as the function that it decorates."""
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call) and one.args]
    return any(getattr(one.func, "id", "") == "op" and not isinstance(one.args[0], ast.Constant) for one in calls)


def _declared(call: ast.Call, makers: set[str]) -> Iterator[str]:
    """The name of the patch that `patch(name=...)`, `op("torchs_name", ...)` or another row declares."""
    maker = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = next((one.value for one in call.keywords if one.arg == "name"), None)
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        yield given.value
    elif maker in {"op", *makers} and call.args and isinstance(call.args[0], ast.Constant):
        yield str(call.args[0].value).rpartition(".")[2].replace("_", "-")
