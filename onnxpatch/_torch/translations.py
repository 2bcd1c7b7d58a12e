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
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxpatch.undone import Shared, undone

__all__ = ["kept_translations"]

_numbers = itertools.count()
_threads: dict[int, int] = {}  # by the number of the context: contexts nest
# By opset: what was registered then, and the table. One object, so that no thread sees half of it.
_tables: dict[int, tuple[object, Any]] = {}


@contextlib.contextmanager
def kept_translations() -> Iterator[None]:
    """A context in which a dynamo export in this thread takes the table of an earlier one."""
    number = next(_numbers)
    with _REPLACED.held(), undone(lambda: _threads.pop(number, None)):
        _threads[number] = threading.get_ident()
        yield


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        build: Callable[..., Any] = ONNXRegistry.from_torchlib
        original = ONNXRegistry.__dict__["from_torchlib"]
    except (ImportError, AttributeError, KeyError):
        yield
        return

    def kept(cls: Any, *args: Any, **kwargs: Any) -> Any:
        opset = kwargs.get("opset_version")
        if threading.get_ident() not in _threads.values() or cls is not ONNXRegistry or args or len(kwargs) != 1:
            return original.__get__(None, cls)(*args, **kwargs)
        return _copied(opset, lambda: build(opset_version=opset))

    with undone(lambda: setattr(ONNXRegistry, "from_torchlib", original)):
        ONNXRegistry.from_torchlib = classmethod(kept)  # type: ignore[method-assign, assignment]
        yield


_REPLACED = Shared(_replaced)


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
