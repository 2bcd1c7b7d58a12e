"""Records torch calls one after another, so that a part of a forward can run again on other tensors.

While branches are exported, every torch call of the model becomes a `TorchCall` on a list, the *tape*. `pruned` keeps
the calls that a result depends on, and `Rebinding.run` repeats calls with other tensors in place of the first ones:

    y = x * 2           tape: [mul(x, 2) -> y, add(y, 1) -> z]
    z = y + 1
    binding = Rebinding()
    binding.bind(x, other)          # `other` replaces x
    binding.run(tape)               # computes other * 2 + 1
    binding(z)                      # its result
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import free_symbols, in_steps, substitute_symbols
from onnxpatch._torch.function_modes import unseen
from onnxpatch.control_flow.pytrees import Leaf, Name, leaves, names_and_size_symbols, names_in, rebuilt, tensors

if TYPE_CHECKING:
    import sympy

LeafT = TypeVar("LeafT")

# Calls that give constants. They run once, outside: torch.cond refuses torch.tensor inside a branch.
_CONSTANTS = frozenset({torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray})


class Composite:
    """A function that makes many calls and is recorded as one: an If, a loop. Every path makes a new object of it."""


# Compared by identity: `==` of the arguments would compare tensors element by element.
@dataclass(eq=False)
class TorchCall:
    """One torch call, with its arguments and result. mutates: it writes into one of its arguments."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    result: object
    mutates: bool = False

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", ""))

    @property
    def constant(self) -> bool:
        """Whether the result is the same in every run: `torch.tensor` of plain numbers."""
        return self.function in _CONSTANTS and not any(True for _ in leaves((self.args, self.kwargs)))

    def inputs(self) -> set[Name]:
        """The tensors (by id) and symbols that the call reads."""
        return names_in((self.args, self.kwargs))

    def outputs(self) -> set[Name]:
        """The tensors (by id) that the call returns, and the symbols in their sizes."""
        return names_and_size_symbols(self.result)


class Rebinding:
    """Maps the tensors and symbols of the first run to those of a repeated run."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.symbols: dict[sympy.Symbol, object] = {}

    def child(self) -> Rebinding:
        """A copy for one side of a branch: what is bound in the copy is not bound here."""
        copy = Rebinding()
        copy.tensors, copy.symbols = dict(self.tensors), dict(self.symbols)
        return copy

    def __call__(self, leaf: LeafT) -> LeafT:
        """The tensor or number that replaces `leaf`; `leaf` itself where none does."""
        if isinstance(leaf, torch.Tensor):
            return cast(LeafT, self.tensors.get(id(leaf), leaf))
        return cast(LeafT, in_steps(substitute_symbols(leaf, self.symbols)))

    def bind(self, old: object, new: object) -> None:
        """Replace the leaves of the nest `old` by those of `new` from now on, the symbols in their sizes too."""
        for before, after in zip(leaves(old), leaves(new), strict=True):
            if isinstance(before, torch.Tensor):
                assert isinstance(after, torch.Tensor)
                self.tensors[id(before)] = after
                # While tracing, a size is a tensor, and has been bound as the result of its own call.
                if exporting() != "trace":
                    # Unseen: who records the repeated calls would take the tensor of the first run for one they need.
                    with unseen():
                        sizes, others = before.shape, after.shape
                    # A repeated call may give new symbols (the size of a `nonzero`, say), which later calls use as
                    # numbers.
                    for size, other in zip(sizes, others, strict=False):
                        self._bind_symbol(size, other)
            else:
                self._bind_symbol(before, after)

    def _bind_symbol(self, old: Leaf | int, new: Leaf | int) -> None:
        symbols = free_symbols(old)
        if isinstance(old, int | torch.Tensor) or len(symbols) != 1:
            return
        expression = old.node.expr
        # Only a symbol alone can be replaced: `2 * s0` does not say what s0 is. A mapping to itself would say nothing.
        if expression.is_Symbol and str(expression) != str(getattr(new, "node", new)):
            self.symbols[expression] = new

    def run(self, calls: Iterable[TorchCall]) -> None:
        """Repeat calls, with their arguments replaced; their results are bound in turn."""
        for call in calls:
            if call.constant:
                continue
            args, kwargs = rebuilt(call.args, self), rebuilt(call.kwargs, self)
            self.bind(call.result, call.function(*args, **kwargs))


def pruned(calls: list[TorchCall], needed: set[Name]) -> list[TorchCall]:
    """The calls that `needed` depends on, and every mutation. Adds to `needed` what these calls read in turn."""
    kept: list[TorchCall] = []
    for call in reversed(calls):
        # A mutation stays whatever is needed: it may write through a view, under another id than the needed tensor's.
        if call.mutates or not needed.isdisjoint(call.outputs()):
            kept.append(call)
            needed |= call.inputs()
    return kept[::-1]


def names_made(calls: Iterable[TorchCall]) -> set[Name]:
    """What repeating calls provides; constants are not repeated."""
    made: set[Name] = set()
    for call in calls:
        if not call.constant:
            # A call may return its own argument (`x.to(x.dtype)`), which something else has made.
            given = {id(tensor) for tensor in tensors((call.args, call.kwargs))}
            made |= call.outputs() - given
    return made
