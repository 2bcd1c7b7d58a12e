"""The house in figures: lines, files, code proper, public names, branch points, circles, modules at the root.

usage: python -m benchmarks.house [FOLDER]     FOLDER: another checkout, to compare with; this one unless given

Code proper is the lines that have something else than a comment, a docstring or an import. A class or function is
public if its name has no underscore in front and it stands at the top of its module. Lines for each patch of a function
of torch are those of patches/torch_ops, proofs included, over its rows and declarations, by whatever name of the file.
`python -m benchmarks.export_path` counts the modules that one export enters.
"""

from __future__ import annotations

import ast
import collections
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import TypeGuard

from tests.branch_points import MOST, branch_points

ROOT = Path(__file__).resolve().parents[1]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DECLARE = {"op", "patch"}


def sources(root: Path) -> dict[str, str]:
    """The text of each module under onnxpatch/ and patches/, by its path; the link onnxpatch/patches is left out."""
    files = [file for folder in ("onnxpatch", "patches") for file in sorted((root / folder).rglob("*.py"))]
    own = [file.relative_to(root) for file in files if (root / "onnxpatch" / "patches") not in file.parents]
    return {str(file): (root / file).read_text(encoding="utf-8") for file in own}


def code_lines(source: str, tree: ast.Module) -> int:
    """How many lines are neither blank nor comments, docstrings or imports."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether it is a docstring, or another text that nothing reads."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def public(trees: dict[str, ast.Module], kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> list[str]:
    """The public names of a kind at the top of the modules; the overloads of one function are one."""
    nodes = (node for tree in trees.values() for node in tree.body if isinstance(node, kind) and node.name[0] != "_")
    return [node.name for node in nodes if "overload" not in map(ast.unparse, node.decorator_list)]


def rows(tree: ast.Module) -> int:
    """How many patches a file declares by `op` and `patch`, and by names of its own that stand for one of these.

    Such a name is a function that calls one, or a functools.partial of one. A call in a loop counts once.
    """
    inside = [node for node in tree.body if isinstance(node, ast.FunctionDef) and _calls(node.body, _DECLARE)]
    partly = [node for node in tree.body if isinstance(node, ast.Assign) and _of_another(node.value)]
    own = {node.name for node in inside} | {ast.unparse(node.targets[0]) for node in partly}
    return _calls([tree], _DECLARE | own) - sum(_calls(node.body, _DECLARE) for node in inside)


def _calls(nodes: Sequence[ast.AST], names: Set[str]) -> int:
    called = (node.func for one in nodes for node in ast.walk(one) if isinstance(node, ast.Call))
    return sum(isinstance(func, ast.Name) and func.id in names for func in called)


def _of_another(value: ast.expr) -> bool:
    first = value.args[:1] if isinstance(value, ast.Call) else []
    return any(isinstance(one, ast.Name) and one.id in _DECLARE for one in first)


def figures(root: Path) -> Iterator[tuple[str, object]]:
    """(what, how many) of a checkout."""
    texts = sources(root)
    trees = {file: ast.parse(text) for file, text in texts.items()}
    yield "lines of onnxpatch/ and patches/", sum(text.count("\n") for text in texts.values())
    yield "files", len(texts)
    yield "code proper", sum(code_lines(text, trees[file]) for file, text in texts.items())
    for kind, what in ((ast.ClassDef, "classes"), (ast.FunctionDef, "functions")):
        names = public(trees, kind)
        twice = sum(count > 1 for count in collections.Counter(names).values())
        yield f"public {what}", f"{len(names)}, {twice} names more than once"
    torch_ops = [file for file in texts if file.startswith("patches/torch_ops/")]
    lines, patches = sum(texts[file].count("\n") for file in torch_ops), sum(rows(trees[file]) for file in torch_ops)
    yield "lines for each patch of a function of torch", f"{lines / max(patches, 1):.0f} ({lines} / {patches})"
    points = [count for text in texts.values() for count, _, _ in branch_points(text)]
    over = sum(count > MOST for count in points)
    yield "largest branch count of a function", f"{max(points)}, {over} functions over {MOST}"
    yield "modules at the root", sum(file.count("/") == 1 and file.startswith("onnxpatch/") for file in texts) - 1


if __name__ == "__main__":
    for what, number in figures(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT):
        print(f"{what:44} {number}")
