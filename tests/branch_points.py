"""Counts the branch points of every function: `if`, `and`, `or`, `x if y else z`, loops, comprehensions, `except`.

`python -m tests.branch_points` lists the functions with more than MOST, and fails where there is one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 12
_POINTS = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.BoolOp, ast.comprehension)


def branch_points(source: str) -> Iterator[tuple[int, int, str]]:
    """(branch points, line, name) of each function, inner ones counted with those around them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield sum(isinstance(inner, _POINTS) for inner in ast.walk(node)), node.lineno, node.name


def over() -> list[tuple[int, str]]:
    """(branch points, place) of the functions of the package with more than MOST, the largest first."""
    files = [file for folder in ("onnxpatch", "patches") for file in (ROOT / folder).rglob("*.py")]
    own = (file.relative_to(ROOT) for file in files if (ROOT / "onnxpatch" / "patches") not in file.parents)
    found = [
        (count, f"{file}:{line} {name}")
        for file in own
        for count, line, name in branch_points((ROOT / file).read_text(encoding="utf-8"))
        if count > MOST
    ]
    return sorted(found, reverse=True)


if __name__ == "__main__":
    found = over()
    if found:
        print(*(f"{count:3} {place}" for count, place in found), sep="\n")
        sys.exit(f"{len(found)} functions have more than {MOST} branch points")
