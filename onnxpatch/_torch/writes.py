"""Reports the tensors that a forward is about to write into.

Uses `OpOverload._schema`, which marks the arguments that an operator writes. If it moves, no write is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.gone import gone_class

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    TorchDispatchMode = gone_class("torch.utils._python_dispatch.TorchDispatchMode")  # type: ignore[misc]


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
