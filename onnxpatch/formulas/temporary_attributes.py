"""Attributes and context variables that have another value while a stand-in calls the original."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from onnxpatch.process import undone

T = TypeVar("T")
_MISSING = object()


@contextlib.contextmanager
def temporary_attributes(module: torch.nn.Module, **attributes: object) -> Iterator[None]:
    """Inside the block, `module` has these attributes; they hide its parameters and buffers of the same names."""
    here: dict[str, Any] = vars(module)
    before = {name: here.get(name, _MISSING) for name in attributes}

    def put_back() -> None:
        for name, value in before.items():
            if value is _MISSING:
                here.pop(name, None)
            else:
                here[name] = value

    with undone(put_back):
        here.update(attributes)
        yield


@contextlib.contextmanager
def temporary_variable(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Inside the block, `variable` has this value. It must have a default."""
    before = variable.get()
    with undone(lambda: variable.set(before)):
        variable.set(value)
        yield
