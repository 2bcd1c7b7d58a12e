"""Conditions on sizes that torch.export wrote down and cannot work out: which, why, and what happens when they move.

- `ShapeEnv.guards`, `ShapeGuard.sloc`: conditions with the line that asked. Where an operator asked (two sizes that an
  addition needs equal, say), eager asks as well and nothing is lost without it; but where sympy cannot solve it for the
  size, torch.export fails with NotImplementedError instead of leaving it (as it does with an inequality).
- `ShapeEnv.deferred_runtime_asserts`: checks that torch.export writes into its graph. It does so with sympy functions,
  and the one for a true division of whole numbers fails there: "symbolically traced variables cannot be used as inputs
  to control flow". torch.onnx leaves such checks out in any case.

Where they have moved, nothing is left out, and such models are refused as torch.export refuses them.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch

# Where torch computes the shapes that operators make.
_OPERATORS = tuple(os.path.join(os.path.dirname(torch.__file__), part) for part in ("_subclasses", "_meta", "_refs"))


def leave_out_unsolvable() -> None:
    """Drop what torch.export could neither solve nor write down; for the end of a forward under torch.export."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._guards import detect_fake_mode

        mode = detect_fake_mode()
        if mode is None or mode.shape_env is None:
            return
        env = mode.shape_env
        env.guards[:] = [guard for guard in env.guards if not (_by_operator(guard) and _agreement(guard.expr))]
        for symbol, checks in env.deferred_runtime_asserts.items():
            env.deferred_runtime_asserts[symbol] = [check for check in checks if not _unwritable(check.expr)]


def _by_operator(guard: Any) -> bool:
    """Whether an operator asked, not an `if` of the model."""
    place = guard.sloc.framework_loc
    return str(getattr(place, "filename", place)).startswith(_OPERATORS)


def _agreement(condition: Any) -> bool:
    """Whether it says that two lengths computed from one size agree."""
    import sympy

    sides = (condition.lhs, condition.rhs) if isinstance(condition, sympy.Eq) else ()
    return len(sides) == 2 and len(sides[0].free_symbols) == 1 and sides[0].free_symbols == sides[1].free_symbols


def _unwritable(condition: Any) -> bool:
    from torch.utils._sympy.functions import IntTrueDiv

    return bool(condition.atoms(IntTrueDiv))
