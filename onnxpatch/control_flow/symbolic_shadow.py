"""Shadows each traced tensor with a fake tensor that has symbolic shapes.

torch.jit.trace runs at one size and keeps no symbols: nobody can tell whether a 3 is always 3, or the batch of the
example. So every call is repeated on fake tensors whose dynamic dimensions are symbols, and the results are kept by the
identity of the real tensors:

    x = input [3, 64], batch dynamic    shadow [s0, 64]
    y = x @ w [3, 10]                   shadow [s0, 10]
    y.shape[0] == 3 while tracing       shadow s0: depends on the input, so a branch on it is a decision

A call that cannot be repeated leaves its results without a shadow. Their sizes then count as dynamic.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import TypeAlias, cast

import torch

from onnxpatch._torch.cond import FakeWorld, traced_dynamic_dims
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.nests import Leaf, SymbolicNumber, rebuilt, tensors
from onnxpatch.control_flow.tape import TorchCall

# While tracing, sizes are 0-d tensors; their shadows are numbers. What a tensor method means for a number:
_ARITHMETIC: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv, "truediv": operator.truediv, "div": operator.truediv, "mod": operator.mod,
    "remainder": operator.mod, "pow": operator.pow, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "abs": operator.abs,
    "radd": lambda a, b: b + a, "rsub": lambda a, b: b - a, "rmul": lambda a, b: b * a,
    "rfloordiv": lambda a, b: b // a, "rtruediv": lambda a, b: b / a, "rmod": lambda a, b: b % a,
    "maximum": torch.sym_max, "minimum": torch.sym_min, "reshape": lambda a, *_: a, "trunc": lambda a: a,
    "to": lambda a, *_, **__: a, "long": lambda a: a,
}  # fmt: skip


Shadow: TypeAlias = torch.Tensor | SymbolicNumber | int | float | bool
"""A fake tensor; of a 0-d tensor that is a size while tracing, a plain or symbolic number."""


class SymbolicShadow:
    """The shadows of the tensors of one trace."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        self._world = FakeWorld()
        self._known: dict[int, Shadow] = {}
        self._derived: set[int] = set()  # ids of tensors that depend on the inputs
        dims = traced_dynamic_dims(len(inputs))
        with tracing_paused():
            for number, tensor in enumerate(inputs):
                self._derived.add(id(tensor))
                with contextlib.suppress(ImportError, AttributeError, TypeError):  # torch's private names have moved
                    self._known[id(tensor)] = self._world.fake(tensor, None if dims is None else dims[number], number)

    def get(self, tensor: torch.Tensor) -> Shadow | None:
        """The shadow of a tensor; None where it has none, as a parameter."""
        return self._known.get(id(tensor))

    def unknown(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor comes from the inputs through a call that could not be repeated."""
        return id(tensor) in self._derived and id(tensor) not in self._known

    def follow(self, call: TorchCall) -> None:
        """Repeat a call on the shadows of its arguments."""
        arguments = tensors((call.args, call.kwargs))
        results = tensors(call.result)
        if not results or not any(id(tensor) in self._derived for tensor in arguments):
            return
        self._derived.update(id(tensor) for tensor in results)
        if any(self.unknown(tensor) for tensor in arguments) or type(call.function).__name__ == "IfCall":
            return
        try:
            with tracing_paused():
                self._keep(results, self._repeat(call))
        except Exception:  # the results have no shadow then; who needs their sizes refuses, with the user's line
            return

    def _repeat(self, call: TorchCall) -> object:
        args, kwargs = rebuilt(call.args, self._shadow_of), rebuilt(call.kwargs, self._shadow_of)
        name = call.name.strip("_")
        if name in _ARITHMETIC and not tensors((args, kwargs)):
            return _ARITHMETIC[name](*args, **kwargs)
        with self._world.mode:
            return call.function(*args, **kwargs)

    def _shadow_of(self, leaf: Leaf) -> Shadow:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shadow = self._known.get(id(leaf))
        return self._world.fake(leaf, frozenset(), None) if shadow is None else shadow

    def _keep(self, results: list[torch.Tensor], shadows: object) -> None:
        found = cast("list[Shadow]", list(shadows) if isinstance(shadows, tuple | list) else [shadows])
        if len(found) == len(results):
            self._known.update((id(tensor), shadow) for tensor, shadow in zip(results, found, strict=True))
