"""What torch.export asks of a number that data decides: `u0 > 1`, `Eq(u0, 0)`, `u1 < s0*s1`. It knows no answer.

Sizes have the example's, a number from data has none. It is read as torch reads sizes of which it knows nothing: not 0,
not 1, equal to no size, and as a position inside of what it is compared with. The answer is no assert: with its range
narrowed, torch's second trace would get other expressions for the sizes made before it than the first.

- `SymBool.node`, `.shape_env`, `.expr`, and what `cond.py` names. If they move, such questions are refused as before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.cond import hints

# `FakeWorld` names symbols after a number: the place of the input, or for sizes that could not be computed from those
# of the inputs this much and more; that much and more where data decides them.
MADE_UP, BY_DATA = 1000, 10**9


def is_by_data(env: Any, symbol: Any) -> bool:
    """Whether a symbol stands for a size that data decides, such as the number of rows of `x[mask]`."""
    sources = getattr(env, "var_to_sources", {}).get(symbol, ())
    names = [str(getattr(getattr(one, "base", one), "source_name", "")) for one in sources]
    return any(name.startswith("in") and name[2:].isdigit() and int(name[2:]) >= BY_DATA for name in names)


_LARGE = 10**9 + 7  # as large as any number from data
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
}


def by_data(number: torch.SymBool | torch.SymInt) -> bool:
    """Whether a number from data decides a condition or a size."""
    env = number.node.shape_env
    known = hints(env)
    return any(symbol not in known or is_by_data(env, symbol) for symbol in number.node.expr.free_symbols)


def assume(condition: torch.SymBool) -> bool | None:
    """The answer to a condition on whole numbers from data; None where none is told.

    None is told of bools from data, of what torch itself knows, and of comparisons with a number such as `n > 5`.
    """
    import sympy
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not by_data(condition) or statically_known_true(condition) or statically_known_true(torch.sym_not(condition)):
        return None
    env = condition.node.shape_env
    expression = env.replace(condition.node.expr)
    numbers = [symbol for symbol in expression.free_symbols if symbol not in hints(env)]
    ranges = [env.var_to_range.get(symbol) for symbol in numbers]
    if not all(symbol.is_integer for symbol in numbers) or any(one is not None and one.upper <= 1 for one in ranges):
        return None  # a bool is 0 or 1
    answer = isinstance(expression, sympy.Ne) if isinstance(expression, sympy.Eq | sympy.Ne) else None
    if type(expression).__name__ in _ORDERS:
        answer = _ordered(expression, numbers, hints(env))
    return answer


def _ordered(expression: Any, numbers: list[Any], sizes: Any) -> bool | None:
    """`left < right`: alike for every number from 2 on, or a position in a size."""
    found = {
        bool(expression.xreplace(dict.fromkeys(numbers, number)).xreplace(sizes)) for number in (2, 3, 100, _LARGE)
    }
    if len(found) == 1:
        return found.pop()
    order = _ORDERS[type(expression).__name__]
    left, right = (bool(side.free_symbols & set(numbers)) for side in expression.args)
    mixed = left == right or not all(side.free_symbols for side in expression.args)
    return None if mixed else bool(order(0, 1) if left else order(1, 0))
