"""Finds code that slices a list which a loop fills: a few rounds do not show what the slice does to later ones.

    outs.append(y)
    outs = outs[-5:]        after three rounds nothing was dropped; the sixth would drop the first entry

So the source of the functions on the stack is searched for slices of such lists. `outs[:]` and `outs[::-1]` take the
whole list, and are allowed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterable
from types import CodeType, FrameType

from onnxpatch.messages.user_code import is_user_frame


def sliced_list(frame: FrameType | None, paths: Iterable[str]) -> str | None:
    """The name of a list, out of `paths`, that a function on the stack slices; None where none does.

    frame: the innermost frame. paths: names as Python writes them, such as "outs" or "model.cache".
    """
    # Without the depth on the stack or the file, which the source does not have.
    names = {path.rpartition(":")[2] for path in paths}
    while frame is not None and names:
        if is_user_frame(frame) and (found := names & _sliced_names(frame.f_code)):
            # The first by name, not any of a set: the message is the same in every process.
            return min(found)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def _sliced_names(code: CodeType) -> frozenset[str]:
    """The expressions that a function takes bounded slices of: `outs` of `outs[-5:]`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # typed in or generated: there is no source to read
        return frozenset()
    parts = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice))
    return frozenset(ast.unparse(part.value) for part in parts if _bounded(part.slice))


def _bounded(index: ast.expr) -> bool:
    return isinstance(index, ast.Slice) and (index.lower is not None or index.upper is not None)
