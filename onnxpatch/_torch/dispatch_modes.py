"""Dispatch modes that watch a forward: how much it computes, and which tensors it writes into.

- `torch.utils.flop_counter.flop_registry`, a formula for each aten operator, is not public. Counting work makes a
  budget the same on every machine. If it moves, matrix products are counted like every other operator, by the elements
  of their results.
- `OpOverload._schema` marks the arguments that an operator writes. If it moves, no write is seen.
- `UntypedStorage._cdata` tells storages apart. If it moves, views of one storage are taken for tensors of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.gone import gone_class
from onnxpatch._torch.unchecked_operators import is_unchecked

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
    """A mode that counts the arithmetic inside the block. Bodies of torch.cond and torch.while_loop are not counted.

    unchecked: an operator ran whose C code does not check the positions that it gets.
    """

    # torch.cond and torch.while_loop refuse to run in a mode that does not declare support for them.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0.0
        self.unchecked = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Read by torch 2.11 and later: whether torch.compile works as usual inside the block.

        Otherwise Dynamo skips the functions that torch.cond compiles, from then on, and torch.cond fails in eager too.
        """
        return True

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.unchecked = self.unchecked or is_unchecked(func)
        self.operations += _CALL + _ELEMENT * _elements(result) + _of_product(func, args, kwargs, result)
        return result


def _elements(result: object) -> int:
    if isinstance(result, torch.Tensor):
        return result.numel()
    return sum(one.numel() for one in result if isinstance(one, torch.Tensor)) if isinstance(result, tuple) else 0


def _of_product(func: object, args: Any, kwargs: Any, result: Any) -> float:
    formula = flop_registry.get(getattr(func, "overloadpacket", None))
    try:
        return float(formula(*args, **kwargs, out_val=result)) if formula else 0.0
    except Exception:  # arguments that the formula does not know: the elements are still counted
        return 0.0


class Writes(TorchDispatchMode):
    """A mode that calls `seen(tensor)` before an operator writes into a tensor.

    For a write through `.data`, that is another tensor with the same storage.
    """

    # For the same reasons as in `OperationCount`.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self, seen: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if schema is not None and schema.is_mutable:
            for number, argument in enumerate(schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    value = args[number] if number < len(args) else kwargs.get(argument.name)
                    for one in value if isinstance(value, list | tuple) else (value,):
                        if isinstance(one, torch.Tensor):
                            self._seen(one)
        return func(*args, **kwargs)


def storage_key(tensor: torch.Tensor) -> int:
    """The same number for all views into one storage."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, TypeError):
        return id(tensor)
