"""Symbolic sizes beside a trace: which sizes depend on dynamic dimensions, and which tensors have equal shapes.

torch.jit.trace knows one size of everything. So every call is repeated on fake tensors whose dynamic dimensions are
symbols; the answers are kept by the identity of the real tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.cond import FakeWorld, traced_dynamic_dims
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.tape import Entry, rebuilt, tensors

# Sizes are numbers here while the trace has them as tensors: what a tensor method means for a number.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "floor_divide": operator.floordiv, "truediv": operator.truediv, "div": operator.truediv, "mod": operator.mod,
    "remainder": operator.mod, "pow": operator.pow, "neg": operator.neg, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "abs": operator.abs,
    "radd": lambda a, b: b + a, "rsub": lambda a, b: b - a, "rmul": lambda a, b: b * a,
    "rfloordiv": lambda a, b: b // a, "rtruediv": lambda a, b: b / a, "rmod": lambda a, b: b % a,
    "maximum": torch.sym_max, "minimum": torch.sym_min, "reshape": lambda a, *_: a, "trunc": lambda a: a,
    "to": lambda a, *_, **__: a, "long": lambda a: a,
}  # fmt: skip


class SymbolicShadow:
    """The fake counterparts of a trace's tensors. `get`: a fake tensor, a (symbolic) number, or None if unknown."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        self._world = FakeWorld()
        self._known: dict[int, Any] = {}
        self._derived: set[int] = set()
        dims = traced_dynamic_dims(len(inputs))
        with tracing_paused():
            for number, tensor in enumerate(inputs):
                self._known[id(tensor)] = self._world.fake(tensor, None if dims is None else dims[number], number)
                self._derived.add(id(tensor))

    def get(self, tensor: torch.Tensor) -> Any:
        return self._known.get(id(tensor))

    def put(self, tensor: torch.Tensor, symbolic: Any) -> None:
        self._derived.add(id(tensor))
        self._known[id(tensor)] = symbolic

    def unknown(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor comes from the inputs in a way that was not followed."""
        return id(tensor) in self._derived and id(tensor) not in self._known

    def follow(self, entry: Entry) -> None:
        """Repeat a call."""
        given = tensors((entry.args, entry.kwargs))
        made = tensors(entry.result)
        if not made or not any(id(tensor) in self._derived for tensor in given):
            return
        self._derived.update(id(tensor) for tensor in made)
        if any(self.unknown(tensor) for tensor in given) or type(entry.function).__name__ == "IfCall":
            return
        try:
            with tracing_paused():
                self._pair(made, self._repeat(entry))
        except Exception:  # an unfollowed call is an unknown shape, which is then asked about and refused by name
            return

    def _repeat(self, entry: Entry) -> Any:
        args, kwargs = rebuilt(entry.args, self._symbolic), rebuilt(entry.kwargs, self._symbolic)
        name = getattr(entry.function, "__name__", "").strip("_")
        if name in _ARITHMETIC and not tensors((args, kwargs)):
            return _ARITHMETIC[name](*args, **kwargs)
        with self._world.mode:
            return entry.function(*args, **kwargs)

    def _symbolic(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = self._known.get(id(leaf))
        return self._world.fake(leaf, frozenset(), None) if found is None else found

    def _pair(self, made: list[torch.Tensor], found: Any) -> None:
        shadow = list(found) if isinstance(found, tuple | list) else [found]
        if len(shadow) == len(made):
            self._known.update((id(tensor), symbolic) for tensor, symbolic in zip(made, shadow, strict=True))
