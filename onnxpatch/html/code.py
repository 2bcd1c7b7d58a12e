"""The code of a patch and of what it stands in for, coloured."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any

from onnxpatch.patching.registry import Patch, resolve

_MOST = 90


@dataclass
class Pair:
    """Before and after, as HTML."""

    before: str
    after: str


def pair(patch: Patch, module: Any = None) -> Pair:
    """What `patch` replaces (in `module`'s class, where it is a class's method) and what it puts there."""
    return Pair(coloured(original(patch, module)), coloured(source(patch.stand_in)))


def original(patch: Patch, module: Any = None) -> str:
    """Source of the overridden methods, or of the functions; a sentence where there is none to be had."""
    if patch.kind == "function":
        found = [(target, resolve(target)) for target in patch.targets[:4]]
        return "\n\n".join(source(thing) if thing is not None else f"# {name}" for name, thing in found)
    if module is None:
        return "\n".join(f"# {target}" for target in patch.targets)
    cls = type(module)
    if patch.kind == "replacement":
        return source(cls)
    held = [getattr(cls, name) for name in sorted(patch.methods) if hasattr(cls, name)]
    own = [method for method in held if getattr(method, "__module__", "") != "torch.nn.modules.module"]
    return f"class {cls.__name__}:  # {cls.__module__}\n" + "\n\n".join(textwrap.indent(source(m), "    ") for m in own)


def source(thing: Any) -> str:
    """Its source, dedented and cut to a page."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    try:
        lines = _bare(textwrap.dedent(inspect.getsource(thing)).rstrip())
    except (OSError, TypeError):
        return f"# {getattr(thing, '__qualname__', thing)}: compiled code, without Python source"
    more = len(lines) - _MOST
    return "\n".join([*lines[:_MOST], *([f"# ... {more} more lines"] if more > 0 else [])])


def _bare(text: str) -> list[str]:
    """Its lines without docstrings and without the decorators on top: those say why, the code says how."""
    lines = text.splitlines()
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a method inside a string or a macro
        return lines
    top = tree.body[0] if tree.body else None
    dropped: set[int] = set()
    if isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and top.decorator_list:
        dropped |= set(range(1, top.lineno))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1 and _is_text(body[0]):
            dropped |= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    return [line for number, line in enumerate(lines, 1) if number not in dropped]


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def coloured(text: str) -> str:
    """HTML with class names of Pygments, where it is installed (rich brings it)."""
    lines = "\n".join(coloured_lines(text))
    return f'<div class="code"><pre>{lines}</pre></div>'


def coloured_lines(text: str) -> list[str]:
    """The same line by line; every element closes on its line."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return escape(text).split("\n")
    shown = str(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)))
    return shown.removesuffix("\n").split("\n")
