"""Runs an operator on fake tensors once for all arguments of the same shape.

A model of sixty equal layers has sixty times the same operators, and each run on fake tensors takes as long as hundreds
of real ones. Fake tensors of one shape, stride and dtype are one object here, so that calls with equal arguments are
recognized.

Shapes are compared by `SymInt.node.expr`, the sympy expression of a size, which is private. If it moves, nothing is
shared, and every call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from onnxpatch._torch.cond import free_symbols

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout)


class _UnsharedError(Exception):
    """A value that must not be taken for another one."""


class FakeResults:
    """The fake tensors of one trace, by shape, and the results of its operators, by arguments."""

    def __init__(self) -> None:
        self._tensors: dict[Hashable, torch.Tensor] = {}
        self._results: dict[Hashable, list[Any]] = {}

    def results(
        self, operator: object, args: list[object], kwargs: dict[str, object], run: Callable[[], object]
    ) -> list[Any]:
        """The results of an operator: those of an equal call, or else those of `run()`."""
        try:
            key = (operator, tuple(map(self._key, args)), tuple((name, self._key(one)) for name, one in kwargs.items()))
        except _UnsharedError:
            return _listed(run())
        if key not in self._results:
            results = [self.tensor(one) for one in _listed(run())]
            # A size that the data decide (of `nonzero`) is another one at every call, however equal the arguments.
            try:
                if not _symbols(results) <= _symbols([*args, *kwargs.values()]):
                    return results
            except AttributeError:  # sizes that cannot be compared
                return results
            self._results[key] = results
        return self._results[key]

    def tensor(self, value: Any) -> Any:
        """The first fake tensor of this shape, stride and dtype; what is no tensor, or has a known content, itself."""
        try:
            return self._tensors.setdefault(_shape_key(value), value)
        except _UnsharedError:
            return value

    def _key(self, value: object) -> Hashable:
        if isinstance(value, torch.Tensor):
            if self.tensor(value) is not value:
                raise _UnsharedError
            return id(value)  # both tables keep it alive
        if isinstance(value, _PLAIN):
            return (type(value), value)
        if isinstance(value, list | tuple):
            return tuple(map(self._key, value))
        return _expression(value)


def _shape_key(value: object) -> Hashable:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise _UnsharedError
    if getattr(value, "constant", None) is not None:  # a FakeTensor's, whose content is known
        raise _UnsharedError
    sizes = (*map(_expression, value.shape), *map(_expression, value.stride()))
    return (value.dtype, value.device, value.dim(), sizes)


def _expression(size: Any) -> Hashable:
    if isinstance(size, int):
        return size
    try:
        expression: Hashable = size.node.expr
    except AttributeError:
        raise _UnsharedError from None
    return expression


def _symbols(values: list[object]) -> set[Any]:
    """The symbols in sizes and in shapes."""
    found: set[Any] = set()
    for value in values:
        inner = value.shape if isinstance(value, torch.Tensor) else value
        for one in inner if isinstance(inner, list | tuple) else (inner,):
            if isinstance(one, torch.Tensor | list | tuple):
                found |= _symbols([one])
            else:
                found |= free_symbols(one)
    return found


def _listed(made: object) -> list[object]:
    return list(made) if isinstance(made, tuple) else [made]
