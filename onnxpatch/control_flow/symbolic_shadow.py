"""Shadows each traced tensor with a fake tensor that has symbolic shapes.

torch.jit.trace runs at one size and keeps no symbols: nobody can tell whether a 3 is always 3, or the batch of the
example. So every call is repeated on fake tensors whose dynamic dimensions are symbols, and the results are kept by the
identity of the real tensors:

    x = input [3, 64], batch dynamic    shadow [s0, 64]
    y = x @ w [3, 10]                   shadow [s0, 10]
    y.shape[0] == 3 while tracing       shadow s0: depends on the input, so a branch on it is a decision

A call that cannot be repeated leaves its results without a shadow. Their sizes then count as dynamic. What an If gives
has the sizes that all paths have; each of the others is a symbol of its own.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import TypeAlias, cast

import torch

from onnxpatch._torch.fake_sizes import FakeWorld, traced_dynamic_axes
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch.control_flow.pytrees import Leaf, SymbolicNumber, map_leaves, tensors
from onnxpatch.control_flow.tape import Composite, TorchCall

Shadow: TypeAlias = torch.Tensor | SymbolicNumber | int | float | bool
"""A fake tensor; of a 0-d tensor that is a size while tracing, a plain or symbolic number."""


class SymbolicShadow:
    """The shadows of the tensors of one trace."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        self._world = FakeWorld()
        # By id, which stays valid: the capture keeps every call alive, with its tensors.
        self._known: dict[int, Shadow] = {}
        self._derived: set[int] = set()  # ids of tensors that depend on the inputs
        self._numbers = itertools.count(len(inputs))
        axes = traced_dynamic_axes()
        with tracing_paused():
            for number, tensor in enumerate(inputs):
                self._derived.add(id(tensor))
                with contextlib.suppress(ImportError, AttributeError, TypeError):  # torch's private names have moved
                    self._known[id(tensor)] = self._world.fake(
                        tensor, None if axes is None else axes.get(number, frozenset()), number
                    )

    def get(self, tensor: torch.Tensor) -> Shadow | None:
        """The shadow of a tensor; None where it has none, as a parameter."""
        return self._known.get(id(tensor))

    def is_condition(self, predicate: torch.Tensor) -> bool:
        """Whether a 0-d bool tensor was computed from sizes alone."""
        return isinstance(self.get(predicate), torch.SymBool)

    def unknown(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor comes from the inputs through a call that could not be repeated."""
        return id(tensor) in self._derived and id(tensor) not in self._known

    def follow(self, call: TorchCall) -> None:
        """Repeat a call on the shadows of its arguments."""
        arguments = tensors((call.args, call.kwargs))
        results = tensors(call.result)
        # What does not depend on the inputs has the same sizes for all of them.
        if not results or not any(id(tensor) in self._derived for tensor in arguments):
            return
        self._derived.update(id(tensor) for tensor in results)
        merges = isinstance(call.function, Composite) and call.function.merges_paths
        if merges or any(self.unknown(tensor) for tensor in arguments):
            return
        try:
            with tracing_paused():
                self._keep(results, self._repeat(call))
        except Exception:  # the results have no shadow then; who needs their sizes refuses, with the user's line
            return

    def join(self, result: torch.Tensor, values: Sequence[object]) -> None:
        """Give `result`, which an If has made of one of these values, a shadow."""
        if any(not isinstance(value, torch.Tensor) or self.unknown(value) for value in values):
            return
        with contextlib.suppress(ImportError, AttributeError, TypeError), tracing_paused():
            shapes = [shadow.shape for value in values if isinstance(shadow := self._shadow_of(value), torch.Tensor)]  # type: ignore[arg-type]
            if len(shapes) != len(values) or len({len(shape) for shape in shapes}) != 1:
                return
            same = [
                len({size if isinstance(size, int) else None for size in sizes}) == 1
                for sizes in zip(*shapes, strict=True)
            ]
            dynamic = frozenset(dim for dim, size in enumerate(shapes[0]) if not same[dim] or not isinstance(size, int))
            self._known[id(result)] = self._world.fake(result, dynamic, next(self._numbers))

    def _repeat(self, call: TorchCall) -> object:
        from onnxpatch._torch.traced_shapes import ARITHMETIC  # here: torch.export has no need of it

        name = call.name.strip("_")
        if name in ARITHMETIC and all(self._is_number(leaf) for leaf in tensors((call.args, call.kwargs))):
            return ARITHMETIC[name](*map_leaves(call.args, self._number_of), **map_leaves(call.kwargs, self._number_of))
        args, kwargs = map_leaves(call.args, self._shadow_of), map_leaves(call.kwargs, self._shadow_of)
        # opt_einsum, where it is installed, asks sizes as numbers for the order of an einsum's products.
        with self._world.running(), torch.backends.opt_einsum.flags(enabled=False):
            return call.function(*args, **kwargs)

    def _shadow_of(self, leaf: Leaf) -> Shadow:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shadow = self._known.get(id(leaf))
        return self._world.fake(leaf, frozenset(), None) if shadow is None else shadow

    def _is_number(self, leaf: torch.Tensor) -> bool:
        """Whether a tensor is a size, or one read off a parameter: the same for all inputs."""
        stored = leaf.dim() == 0 and leaf.dtype == torch.int64 and id(leaf) not in self._derived
        return stored or not isinstance(self._known.get(id(leaf), leaf), torch.Tensor)

    def _number_of(self, leaf: Leaf) -> Shadow:
        found = self._known.get(id(leaf)) if isinstance(leaf, torch.Tensor) else leaf
        # int() is safe here: a number without a shadow was read off a parameter, and is the same for all inputs.
        return int(leaf) if found is None and isinstance(leaf, torch.Tensor) else cast(Shadow, found)

    def _keep(self, results: list[torch.Tensor], shadows: object) -> None:
        found = cast("list[Shadow]", list(shadows) if isinstance(shadows, tuple | list) else [shadows])
        # With another number of results, nobody knows which shadow is whose.
        if len(found) == len(results):
            self._known.update((id(tensor), shadow) for tensor, shadow in zip(results, found, strict=True))
