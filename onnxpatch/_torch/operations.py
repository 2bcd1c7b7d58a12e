"""Counts the arithmetic of a forward, so that a budget is the same on every machine.

Uses `torch.utils.flop_counter.flop_registry`, a formula for each aten operator; it is not public. If it moves, matrix
products are counted like every other operator, by the elements of their results.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch.gone import gone_class

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    TorchDispatchMode = gone_class("torch.utils._python_dispatch.TorchDispatchMode")  # type: ignore[misc]

try:
    from torch.utils.flop_counter import flop_registry
except ImportError:
    flop_registry = {}

# The unit is one multiplication in a matrix product. Reading and writing an element takes as long as 16 of them, and
# the call of an operator as long as 200,000, on one core.
_ELEMENT = 16
_CALL = 200_000


class OperationCount(TorchDispatchMode):
    """A mode that counts the arithmetic inside the block. Bodies of torch.cond and torch.while_loop are not counted."""

    # torch.cond and torch.while_loop refuse to run in a mode that does not declare support for them.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Read by torch 2.11 and later: whether torch.compile works as usual inside the block.

        Otherwise Dynamo skips the functions that torch.cond compiles, from then on, and torch.cond fails in eager too.
        """
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
    except Exception:  # arguments that the formula does not know: the elements are still counted
        return 0.0
