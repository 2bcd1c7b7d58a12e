"""Fingerprints of methods: a copy of known code is known whatever module it was copied to, a changed one is not."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

Bodies = Mapping[str, Collection[str]]


@functools.lru_cache(maxsize=4096)
def fingerprint(function: Any) -> str | None:
    """Twelve hex digits of what `function` does: comments, docstring, annotations, decorators and layout left out.

    None where there is no source to read.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return None
    if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
        return None
    return hashlib.sha256(ast.unparse(_bare(tree.body[0])).encode()).hexdigest()[:12]


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    function.decorator_list, function.returns = [], None
    if ast.get_docstring(function, clean=False) is not None and len(function.body) > 1:
        function.body = function.body[1:]
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
    return function


def known(cls: type, bodies: Bodies) -> bool:
    """Whether every method that `bodies` names is, in `cls`, one of the codes known for it."""
    return bool(bodies) and all(hasattr(cls, name) for name in bodies) and unknown_body(cls, bodies) is None


def unknown_body(cls: type, bodies: Bodies) -> str | None:
    """The reason to leave `cls` alone, as one of its methods is not the code that was known; None if all are."""
    for name, prints in bodies.items():
        found = fingerprint(getattr(cls, name, None))
        if found not in prints:
            known_ones = ", ".join(sorted(prints))
            return f"its {name}() is other code than this patch was written for (fingerprint {found}, not {known_ones})"
    return None
