"""The dynamo exporter's table of translations, built once in a process instead of once in every export.

Building it reads the source of some 500 functions, half a second. It is built again where an operator of torch or a
translation has been registered since. Private torch APIs:

- `torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib`: replaced in this thread. It gives a copy of
  the table, since an export adds translations of its own. If it moves, every export builds one.
- `torch._C._dispatch_get_all_op_names`, `torch.onnx._internal.exporter._torchlib._torchlib_registry.get_torchlib_ops`
  and onnxscript's `default_registry`: what is registered. If they move, the same.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.replaced import Replaced

__all__ = ["kept_translations"]

# By opset: what was registered then, and the table. One object, so that no thread sees half of it.
_tables: dict[int, tuple[object, Any]] = {}


def kept_translations() -> contextlib.AbstractContextManager[None]:
    """A context in which a dynamo export in this thread takes the table of an earlier one."""
    return _REPLACED.held()


def _keeping(original: Any) -> Any:
    def kept(cls: Any, *args: Any, **kwargs: Any) -> Any:
        build, opset = original.__get__(None, cls), kwargs.get("opset_version")
        if not _REPLACED.here() or "from_torchlib" not in vars(cls) or args or len(kwargs) != 1:
            return build(*args, **kwargs)
        return _copied(opset, lambda: build(opset_version=opset))

    return classmethod(kept)


_REPLACED = Replaced("torch.onnx._internal.exporter._registration.ONNXRegistry.from_torchlib", _keeping)


def _copied(opset: Any, build: Callable[[], Any]) -> Any:
    """A copy of the table for an opset, which the caller may change."""
    try:
        registered = _registered()
    except (ImportError, AttributeError):
        return build()
    known, table = _tables.get(opset, (None, None))
    if known != registered:
        table = build()
        _tables[opset] = registered, table
    made = copy.copy(table)
    made.functions = {target: list(written) for target, written in table.functions.items()}
    return made


def _registered() -> object:
    """Changes with every operator of torch, and every translation, that is registered."""
    from onnxscript.function_libs.torch_lib import ops, registration
    from torch.onnx._internal.exporter._torchlib import _torchlib_registry

    del ops  # imported for what it registers
    scripts = [one for function in registration.default_registry.values() for one in function.overloads]
    written = [*scripts, *_torchlib_registry.get_torchlib_ops()]
    return len(torch._C._dispatch_get_all_op_names()), tuple(id(one) for one in written)
