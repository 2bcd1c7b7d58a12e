"""How much arithmetic a forward does, counted and not timed: the same figure on every machine.

Relies on `torch.utils.flop_counter.flop_registry`, which is not among torch's public names: a formula
per aten operator. Where it moves, products count like every other operator, by the elements of their results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

try:
    from torch.utils.flop_counter import flop_registry
except ImportError:
    flop_registry = {}

# What one processor core does in the time of one multiplication within a product is the unit: an element that is read
# and written takes as long as 16 of them, a call of an operator as long as 200,000.
_ELEMENT = 16
_CALL = 200_000


class OperationCount(TorchDispatchMode):
    """Counts the arithmetic of what runs inside the block, in multiplications and additions of a product.

    What torch.cond and its kin run inside is not counted.
    """

    # torch.cond and its kin refuse to run in a mode that does not hand them on.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave torch.compile as it is inside the block. Otherwise it skips the functions that torch.cond compiles,
        there and from then on, and torch.cond fails in eager, too. Read by torch 2.11 or so and later."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.operations += _CALL + _ELEMENT * _elements(result) + _of_product(func, args, kwargs, result)
        return result


def _elements(result: object) -> int:
    if isinstance(result, torch.Tensor):
        return result.numel()
    return sum(one.numel() for one in result if isinstance(one, torch.Tensor)) if isinstance(result, tuple) else 0


def _of_product(func: Any, args: Any, kwargs: Any, result: Any) -> float:
    formula = flop_registry.get(getattr(func, "overloadpacket", None))
    try:
        return float(formula(*args, **kwargs, out_val=result)) if formula else 0.0
    except Exception:  # a form of the call that the formula does not know: its elements are counted all the same
        return 0.0
