"""Drops guards of operators that torch.export cannot solve, and keeps onnxpatch's files out of guards' source lines.

- `ShapeEnv.guards` (torch.export) and `ShapeEnv.deferred_runtime_asserts` (torch.onnx): the conditions on sizes, with
  the line that caused them (`ShapeGuard.sloc`, `RuntimeAssert.stack`). An operator's condition, such as two equal sizes
  in an addition, is checked at run time as well. If sympy cannot solve it for a size, torch.export raises
  NotImplementedError, so it is dropped. If these move, such models are refused.
- `uninteresting_files`: the files that torch skips when it looks for the line of a guard. onnxpatch's files are added
  while a patched model runs. If it moves, guards name lines of onnxpatch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from onnxpatch.undone import undone

# torch computes the shapes of operators' results in these files.
_OPERATORS = tuple(os.path.join(os.path.dirname(torch.__file__), part) for part in ("_subclasses", "_meta", "_refs"))


@contextlib.contextmanager
def ignore_frames(files: Iterable[str]) -> Iterator[None]:
    """A context in which torch names no line of `files` as the cause of a guard."""
    try:
        from torch.fx.experimental.symbolic_shapes import uninteresting_files

        known = uninteresting_files()
        added = set(files) - known
    except (ImportError, AttributeError):
        yield
        return
    with undone(lambda: known.difference_update(added)):
        known.update(added)
        yield


def drop_unsolvable_guards() -> None:
    """Drop guards that torch.export may fail to solve. Call it at the end of a forward under torch.export."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._guards import detect_fake_mode

        mode = detect_fake_mode()
        if mode is None or mode.shape_env is None:
            return
        env = mode.shape_env
        kept: tuple[list[Any], list[Any]] = (env.guards, env.deferred_runtime_asserts.get(None, []))
        for conditions in kept:
            conditions[:] = [one for one in conditions if not (_agreement(one.expr) and _by_operator(one))]


def _by_operator(condition: Any) -> bool:
    """Whether an operator caused the guard, not an `if` of the model."""
    from torch.fx.experimental.symbolic_shapes import uninteresting_files

    if hasattr(condition, "sloc"):
        place = condition.sloc.framework_loc
        return str(getattr(place, "filename", place)).startswith(_OPERATORS)
    files = (frame.filename for frame in reversed(condition.stack.summary()))
    return next((file for file in files if file not in uninteresting_files()), "").startswith(_OPERATORS)


def _agreement(expression: object) -> bool:
    """Whether the condition is the equality of two lengths computed from one size."""
    import sympy

    sides = (expression.lhs, expression.rhs) if isinstance(expression, sympy.Eq) else ()
    return len(sides) == 2 and len(sides[0].free_symbols) == 1 and sides[0].free_symbols == sides[1].free_symbols
