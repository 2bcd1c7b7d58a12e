"""Code as HTML with colours: a patch beside what it replaces, and the lines of a file around one line."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from dataclasses import dataclass
from html import escape

import torch

from onnxpatch.patching.registry import Patch
from onnxpatch.patching.when import resolve

_REACH = 5  # lines before and after
_MOST_LINES = 90
_MOST_TARGETS = 4  # functions of one patch whose code is shown


@dataclass
class LinePair:
    """The code that a patch replaces and its own, as HTML."""

    before: str
    after: str


def pair(patch: Patch, module: torch.nn.Module | None = None) -> LinePair:
    """The code before and after `patch`. module: one that it applies to, whose class has the methods."""
    return LinePair(coloured(original(patch, module)), coloured(source(patch.stand_in)))


def original(patch: Patch, module: torch.nn.Module | None = None) -> str:
    """The source of the methods or functions that a patch replaces; a comment with the name where there is none."""
    if patch.kind == "function":
        functions = [(target, resolve(target)) for target in patch.targets[:_MOST_TARGETS]]
        return "\n\n".join(source(code) if code is not None else f"# {name}" for name, code in functions)
    if module is None:
        return "\n".join(f"# {target}" for target in patch.targets)
    cls = type(module)
    if patch.kind == "replacement":
        return source(cls)
    methods = [getattr(cls, name) for name in sorted(patch.methods) if hasattr(cls, name)]
    # What the class inherits from nn.Module itself is torch's machinery, and not what the patch is about.
    own = [method for method in methods if getattr(method, "__module__", "") != "torch.nn.modules.module"]
    return f"class {cls.__name__}:  # {cls.__module__}\n" + "\n\n".join(textwrap.indent(source(m), "    ") for m in own)


def source(code: object) -> str:
    """The source of a class or function, dedented and cut to a page; a comment where it is compiled."""
    unwrapped = inspect.unwrap(code) if callable(code) else code
    try:
        # getsource takes classes and functions, and raises TypeError for the rest.
        text = inspect.getsource(unwrapped)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return f"# {getattr(unwrapped, '__qualname__', unwrapped)}: compiled code, without Python source"
    lines = _without_docstrings(textwrap.dedent(text).rstrip())
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"# ... {more} more lines"] if more > 0 else [])])


def _without_docstrings(text: str) -> list[str]:
    """The lines of source without docstrings and the decorators on top. The page has the reasons in its own text."""
    lines = text.splitlines()
    try:
        tree = ast.parse(text)
    except SyntaxError:  # getsource goes by lines, and may cut a statement in two
        return lines
    top = tree.body[0] if tree.body else None
    dropped: set[int] = set()
    if isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and top.decorator_list:
        dropped |= set(range(1, top.lineno))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        # A body of a docstring alone keeps it, since it would be no Python without.
        if isinstance(body, list) and len(body) > 1 and _is_string(body[0]):
            dropped |= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    return [line for number, line in enumerate(lines, 1) if number not in dropped]


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def coloured(text: str) -> str:
    """Python code as an HTML block, coloured where pygments is installed."""
    lines = "\n".join(_coloured_lines(text))
    # tabindex: a block that scrolls is moved by the keyboard only once it has the focus.
    return f'<div class="code" tabindex="0"><pre>{lines}</pre></div>'


def _coloured_lines(text: str) -> list[str]:
    """The lines of Python code as HTML. No element goes over a line's end, so that lines can be shown one by one."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return escape(text).split("\n")
    # By default pygments drops empty lines at the start, and every number of a line would be off.
    shown = str(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)))
    return shown.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class Line:
    """One line of source as HTML. at: whether it is the line that was asked for."""

    number: int
    code: str
    at: bool


def around(source: str) -> list[Line]:
    """The line at `source`, written as file:line, and its neighbours. [] where the file has no such line."""
    file, _, number = source.rpartition(":")
    lines = linecache.getlines(file)
    if not number.isdecimal() or not 1 <= int(number) <= len(lines):
        return []
    at = int(number)
    first, last = max(at - _REACH, 1), min(at + _REACH, len(lines))
    coloured = _coloured(lines, first, last)
    return [Line(n, code, n == at) for n, code in enumerate(coloured, first) if code or first < n < last]


def _coloured(lines: list[str], first: int, last: int) -> list[str]:
    """Lines `first` to `last`, counted from 1, dedented.

    The whole file is coloured: a string that begins above the first line would otherwise seem to begin at its end.
    """
    plain = [line.rstrip("\r\n").expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in plain[first - 1 : last] if line.strip()), default=0)
    bare = [line.removeprefix(" " * margin) for line in plain]
    return _coloured_lines("\n".join(bare))[first - 1 : last]
