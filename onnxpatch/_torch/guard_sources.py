"""Conditions on sizes that torch.export wrote down and cannot solve: which, why, and what happens when they move.

`ShapeEnv.guards` (torch.export), `ShapeEnv.deferred_runtime_asserts` (torch.onnx): conditions with the line that asked
(`ShapeGuard.sloc`, `RuntimeAssert.stack`). Where an operator asked (two sizes that an addition needs equal, say), eager
asks as well and nothing is lost without it; but where sympy cannot solve it for the size, torch.export fails with
NotImplementedError instead of leaving it, as it does with an inequality. Where they have moved, nothing is left out,
and such models are refused as torch.export refuses them.

`uninteresting_files`: the files that torch passes by when it looks for that line. The kit's own are among them while a
patched model runs, or it would take the kit for the one who asked; where it has moved, it does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from onnxpatch.undone import undone

# Where torch computes the shapes that operators make.
_OPERATORS = tuple(os.path.join(os.path.dirname(torch.__file__), part) for part in ("_subclasses", "_meta", "_refs"))


@contextlib.contextmanager
def ignore_frames(files: Iterable[str]) -> Iterator[None]:
    """Inside the block, torch names no line of `files` as the one that asked for a condition on a size."""
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
    """Drop what torch.export may fail to solve; for the end of a forward under torch.export."""
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
    """Whether an operator asked, not an `if` of the model."""
    from torch.fx.experimental.symbolic_shapes import uninteresting_files

    if hasattr(condition, "sloc"):
        place = condition.sloc.framework_loc
        return str(getattr(place, "filename", place)).startswith(_OPERATORS)
    files = (frame.filename for frame in reversed(condition.stack.summary()))
    return next((file for file in files if file not in uninteresting_files()), "").startswith(_OPERATORS)


def _agreement(expression: object) -> bool:
    """Whether it says that two lengths computed from one size agree."""
    import sympy

    sides = (expression.lhs, expression.rhs) if isinstance(expression, sympy.Eq) else ()
    return len(sides) == 2 and len(sides[0].free_symbols) == 1 and sides[0].free_symbols == sides[1].free_symbols
