"""Which Python lines a time limit may interrupt with an exception, so that nothing is left half changed.

An exception at any other place may end the process or leave it changed. torch's C++ calls Python for warnings, for the
names of variables and for translations, and does not survive an exception in each of them; a line between a change and
its `try:`, or of a `finally:`, would leave the change behind. So a limit ends

    the model's and its libraries' lines     an error of the model's own passes here as well
    torch's layers and functions             the same, for a model that is made of them
    loops of the exporters over nodes        torch.fx's interpreter, the translation to ONNX, optimizers, sympy

and of these no `with`, `finally:` or `except`, and nothing that is called from an `__enter__`, an `__exit__`, a
`__del__`, a callback of weakref or a warning.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator
from types import FrameType

from onnxpatch.messages.user_code import package_of

_NOT_ENDED = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "onnxpatch"}
_ENDED = ("torch.nn.functional.", "torch.nn.modules.", "torch.fx.interpreter.", "torch.onnx._internal.exporter.")
_MACHINERY = "torch.nn.modules.module"  # calls hooks, and notes which module runs
_CLEANING = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__del__"})
_CALLED_BY_C = ("warnings", "weakref", "logging")


def safe_frames(start: FrameType | None, base: FrameType) -> list[FrameType]:
    """The frames, from `start` outwards to `base`, without that one, of which safe lines may be ended."""
    frames: list[FrameType] = []
    while start is not None and start is not base:
        if start.f_code.co_name in _CLEANING or package_of(start) in _CALLED_BY_C:
            frames.clear()  # those that this one called
        elif may_end(start):
            frames.append(start)
        start = start.f_back
    return frames


def is_safe(frame: FrameType, base: FrameType) -> bool:
    """Whether the line that `frame` is about to run may be ended."""
    return (
        may_end(frame)
        and frame.f_lineno not in _guarded_lines(frame.f_code.co_filename)
        and any(frame is one for one in safe_frames(frame, base))
    )


def may_end(frame: FrameType) -> bool:
    """Whether there are lines in the code of `frame` that may be ended, as far as its module tells."""
    return _module_may_end(str(frame.f_globals.get("__name__", "")))


@functools.cache
def _module_may_end(name: str) -> bool:
    if f"{name}.".startswith(_ENDED):
        return name != _MACHINERY
    return name.partition(".")[0] not in _NOT_ENDED


@functools.lru_cache(maxsize=256)
def _guarded_lines(file: str) -> frozenset[int]:
    """The lines of a file that change something for a time, or put it back. None are known where it has no source."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return frozenset()
    return frozenset(line for node in ast.walk(tree) for line in _guarded(node))


def _guarded(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (ast.With, ast.AsyncWith)):
        # Python is at these lines again when it leaves the block, and no longer inside it.
        yield from range(node.lineno, max(item.context_expr.end_lineno or 0 for item in node.items) + 1)
    elif isinstance(node, ast.Try):
        yield node.lineno
        blocks: list[ast.excepthandler | ast.stmt] = [*node.handlers, *node.finalbody]
        for one in blocks:
            yield from range(one.lineno, (one.end_lineno or one.lineno) + 1)
