"""Reads calls of `F.pad` off a function's syntax tree: what is padded, and by which amounts.

A function is known by its spelling alone. `self.pad(x, ...)` may do more than padding, and is none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

_SPELLINGS = ("pad", "functional.pad", "F.pad", "nn.functional.pad", "torch.nn.functional.pad")


@dataclass(frozen=True)
class PadCall:
    """`F.pad(padded, amounts)`, or `F.pad(padded, pad=amounts)`, with any mode."""

    padded: ast.expr
    amounts: ast.expr


def pad_call(value: ast.AST | None) -> PadCall | None:
    """The call of `F.pad` that an expression is; None for any other expression."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) not in _SPELLINGS or not value.args:
        return None
    amounts = [*value.args[1:2], *(word.value for word in value.keywords if word.arg == "pad")]
    return PadCall(value.args[0], amounts[0]) if len(amounts) == 1 else None


def pads_own_name(statement: ast.stmt) -> bool:
    """Whether a statement is `x = F.pad(x, ...)`."""
    call = pad_call(statement.value) if isinstance(statement, ast.Assign) else None
    return call is not None and assigns(statement, call.padded)


def assigns(statement: ast.stmt, source: ast.expr) -> bool:
    """Whether a statement assigns to what an expression reads, and to nothing else: `x = f(x)` for `x`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [ast.unparse(target) for target in targets] == [ast.unparse(source)]
