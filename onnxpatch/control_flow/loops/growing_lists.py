"""Lists that a loop fills: code that takes a part of one, as long as a number says, is found in the source.

outs.append(y)
outs = outs[-5:]        three rounds do not show that a sixth would drop the first
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterable
from types import CodeType, FrameType

from onnxpatch.messages.user_code import is_user_frame


def sliced(frame: FrameType | None, paths: Iterable[str]) -> str | None:
    """The first of the lists, named as Python writes them, that code on the stack takes a slice of; None for none."""
    names = {path.rpartition(":")[2] for path in paths}
    while frame is not None and names:
        if is_user_frame(frame) and (found := names & _sliced_names(frame.f_code)):
            return min(found)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _sliced_names(code: CodeType) -> frozenset[str]:
    """What a function takes slices of: `outs` of `outs[-5:]`. The whole list, `outs[:]` or reversed, is no part."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # typed in or generated: there is no source to read
        return frozenset()
    parts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice))
    return frozenset(ast.unparse(part.value) for part in parts if _bounded(part.slice))


def _bounded(found: ast.expr) -> bool:
    return isinstance(found, ast.Slice) and (found.lower is not None or found.upper is not None)
