"""Which tensors a forward writes into: seen before they are written, by torch's own statement of what operators write.

Relies on `OpOverload._schema`, whose arguments say which of them are written. Where it moves, nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.gone import gone_class

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    TorchDispatchMode = gone_class("torch.utils._python_dispatch.TorchDispatchMode")


class Writes(TorchDispatchMode):
    """Inside the block, `seen(tensor)` is called before an operator writes into a tensor; `.data` of one is another
    tensor in the same storage."""

    # As `OperationCount` has them, and for the same reasons.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self, seen: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
