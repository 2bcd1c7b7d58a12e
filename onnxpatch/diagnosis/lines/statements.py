"""Finds the statement that a line belongs to: its lines, the names it assigns, and whether it branches."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

_BRANCHING = (ast.If, ast.IfExp, ast.While, ast.For, ast.comprehension, ast.Assert, ast.BoolOp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Statement:
    """One statement. start, end: its first and last line; of an `if` or a loop, those of its head alone.

    names: local names that it assigns. branches: it chooses what runs next.
    """

    file: str
    start: int
    end: int
    names: tuple[str, ...] = ()
    branches: bool = False


# A file is asked for once for each of its lines that is looked at. Its source is taken not to change meanwhile.
@functools.lru_cache(maxsize=64)
def file_tree(file: str) -> ast.Module | None:
    """A source file, parsed; None where it cannot be read."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def statement_at(file: str, line: int) -> Statement | None:
    """The innermost statement on a line; None where there is none."""
    tree = file_tree(file)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree else []
    # A `def` is a statement too, around all the lines of its body.
    inside = [node for node in found if node.lineno <= line <= _last_line(node) and not isinstance(node, _DEFINITIONS)]
    if not inside:
        return None
    # Of nested statements the innermost starts last.
    node = max(inside, key=lambda one: one.lineno)
    return Statement(file, node.lineno, _last_line(node), tuple(_names(node)), _branches(node))


def _last_line(node: ast.stmt) -> int:
    """The last line; of a statement with a body, of its head alone."""
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    found = [one for target in targets if target is not None for one in ast.walk(target)]
    return [one.id for one in found if isinstance(one, ast.Name)]


def _branches(node: ast.stmt) -> bool:
    """Whether a statement chooses what runs next: an if, a loop, a conditional expression, and/or."""
    if isinstance(node, ast.If | ast.While | ast.For | ast.Assert):
        return True
    return any(isinstance(one, _BRANCHING) for one in ast.walk(node)) and not getattr(node, "body", None)
