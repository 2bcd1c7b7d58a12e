"""The statement that a line belongs to: its lines, the names it assigns, whether the way of the program turns on it."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

_TURNING = (ast.If, ast.IfExp, ast.While, ast.For, ast.comprehension, ast.Assert, ast.BoolOp)
_HOLDING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Statement:
    """start, end: first and last line (of the head alone where it holds others); names: local names that it assigns."""

    file: str
    start: int
    end: int
    names: tuple[str, ...] = ()
    turns: bool = False


@functools.lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """A source file, parsed; None where it cannot be read."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def statement_at(file: str, line: int) -> Statement | None:
    """The innermost statement on a line; None where there is none."""
    tree = tree_of(file)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree else []
    inside = [node for node in found if node.lineno <= line <= _last_line(node) and not isinstance(node, _HOLDING)]
    if not inside:
        return None
    node = max(inside, key=lambda one: one.lineno)
    return Statement(file, node.lineno, _last_line(node), tuple(_names(node)), _turns(node))


def _last_line(node: ast.stmt) -> int:
    """Of a statement that holds others, the head alone."""
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    found = [one for target in targets if target is not None for one in ast.walk(target)]
    return [one.id for one in found if isinstance(one, ast.Name)]


def _turns(node: ast.stmt) -> bool:
    """Whether another answer leads elsewhere: an if, a loop, a conditional expression, and/or."""
    if isinstance(node, ast.If | ast.While | ast.For | ast.Assert):
        return True
    return any(isinstance(one, _TURNING) for one in ast.walk(node)) and not getattr(node, "body", None)
