"""Records torch calls one after another, so that a part of a forward can run again on other tensors.

While branches are exported, every torch call of the model becomes a `TorchCall` on a list, the *tape*. `pruned` keeps
the calls that a result depends on, and `Rebinding.run` repeats calls with other tensors in place of the first ones:

    y = x * 2           tape: [mul(x, 2) -> y, add(y, 1) -> z]
    z = y + 1
    binding = Rebinding()
    binding.bind(x, other)          # `other` replaces x
    binding.run(tape)               # computes other * 2 + 1
    binding(z)                      # its result

Two paths are the same up to the decision that was flipped. Their common calls must be in the graph once, so the second
path gets the first one's results from the `CallRecorder`:

    path 1:  sum, gt | decide True  | mul           shared with path 2: sum, gt
    path 2:  sum, gt | decide False | neg           only neg runs

An in-place update changes a result after the fact, so that it can no longer be shared: `reuse` is turned off, and the
explorer starts over, with every path run in full. A call is judged by the name of its function and by its arguments:
`x.add_(1)`, `x += 1`, `torch.add(a, b, out=c)` and `F.relu(x, inplace=True)` write in place; `torch.rand_like(x)` and
`F.dropout(x)` in training draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import free_symbols, in_steps, substitute_symbols
from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch._torch.function_modes import device_of, unseen
from onnxpatch.control_flow.pytrees import Leaf, Name, leaves, map_leaves, names_and_size_symbols, names_in, tensors
from onnxpatch.decisions.ask import Site, here

if TYPE_CHECKING:
    import sympy

LeafT = TypeVar("LeafT")
# Calls that give constants. They run once, outside: torch.cond refuses torch.tensor inside a branch.
_CONSTANTS = frozenset({torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray})
_RANDOM = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial"}
    | {"normal", "poisson", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "cauchy_", "geometric_"}
    | {"log_normal_", "rrelu", "gumbel_softmax", "fractional_max_pool2d"}
)
# `x += y` calls Tensor.__iadd__: the operators that have such a form.
_OPERATORS = frozenset(
    {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "div", "matmul"}
)


class Composite:
    """A function that makes many calls and is recorded as one: an If, a loop. Every path makes a new object of it."""

    merges_paths = False  # as an If does: repeated on fake tensors, it would merge them a second time


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
        """Whether the result is the same in every run: `torch.tensor` of plain numbers.

        torch.export runs on FakeTensors: a plain tensor is a constant that a patch has computed.
        """
        if exporting() == "dynamo" and type(self.result) is torch.Tensor:
            return True
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
            args: Any = map_leaves(call.args, self)
            kwargs = map_leaves(call.kwargs, self)
            with device_of(call.result):
                if call.function is torch.Tensor.__setitem__ and isinstance(args[2], bool | int | float):
                    # torch writes the number as a constant tensor, which it cannot read in a branch of torch.cond.
                    args = *args[:2], torch.full((), args[2], dtype=args[0].dtype)
                made = call.function(*args, **kwargs)
            self.bind(call.result, made)


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
            # A call may return its own argument (`x.to(x.dtype)`) or its size (`arange(n)`), which another has made.
            made |= call.outputs() - call.inputs()
    return made


def is_mutation(function: Callable[..., object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call writes into one of its argument tensors. A function of the kit's own may say so: `mutates`."""
    if not getattr(function, "mutates", True):
        return False
    name = getattr(function, "__name__", "")
    if name.startswith("__"):
        # `x.data = y` reaches a mode as the `__set__` of a property.
        return name in ("__setitem__", "__set__") or (name[2] == "i" and name[3:-2] in _OPERATORS)
    return name.endswith("_") or kwargs.get("out") is not None or kwargs.get("inplace") is True


def is_random(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call draws random numbers."""
    name = getattr(function, "__name__", "")
    if "dropout" in name:  # F.dropout(input, p, training)
        # At evaluation dropout draws nothing.
        return bool(kwargs.get("training", args[2] if len(args) > 2 else True))
    return name in _RANDOM


def written_tensors(args: Sequence[object], kwargs: Mapping[str, object]) -> list[torch.Tensor]:
    """The tensors that a call which mutates writes into: `out=`, else its first argument."""
    out = kwargs.get("out")
    return tensors(out) if out is not None else tensors(args[:1])


def same_call(one: TorchCall, other: TorchCall) -> bool:
    """Whether two calls return the same if nothing is written between them: same function, tensors and numbers."""
    if one is other:
        return True
    pairs = list(zip(one.args, other.args, strict=False))
    alike = one.function is other.function and len(one.args) == len(other.args) and not (one.kwargs or other.kwargs)
    return (
        alike
        and not is_random(one.function, one.args, one.kwargs)
        and all(a is b or (type(a) is type(b) and isinstance(a, int | float) and a == b) for a, b in pairs)
    )


class CallRecorder:
    """The calls of the path that runs now.

    reuse: whether paths share calls. outer_write: the first call, and its line, that wrote in place into a tensor from
    outside this forward: an input, a parameter or a buffer.
    """

    def __init__(self) -> None:
        self.reuse = True
        self.outer_write: tuple[TorchCall, Site] | None = None
        self.begin_path([])

    def begin_path(self, shared: list[TorchCall]) -> None:
        """Start a path that shares its first calls with the one before."""
        self.calls: list[TorchCall] = []
        self._shared = shared
        self._made_here: set[int] = set()
        self._outer_storages: set[int] = set()
        self._makers: dict[int, TorchCall] = {}  # by id of a result: the last call that returned it
        self._results_in: dict[int, set[int]] = {}  # by storage: ids of the results in it
        self._scanned = 0

    def shared_call(self, function: Callable[..., object], args: object, kwargs: object) -> TorchCall | None:
        """The same call of the path before, if this one is shared; None where it has to run.

        Turns `reuse` off where a shared position has another call: something between the calls was not recorded.
        """
        position = len(self.calls)
        if position >= len(self._shared) or not self.reuse:
            return None
        call = self._shared[position]
        # Both paths have decided the same before a shared position: an If or a loop that reads the same tensors is the
        # same there, though it is another object.
        same_kind = isinstance(function, Composite) and type(call.function) is type(function)
        if (call.function == function or same_kind) and call.inputs() == names_in((args, kwargs)):
            return call
        self.reuse = False
        return None

    def append(self, call: TorchCall) -> None:
        """Add a call that ran; one that updates in place turns `reuse` off."""
        self.calls.append(call)
        if call.mutates:
            self.reuse = False
            written = written_tensors(call.args, call.kwargs)
            if self.outer_write is None and any(self.is_outer(tensor) for tensor in written):
                self.outer_write = call, here()
        self._made_here.update(id(tensor) for tensor in tensors(call.result))

    def forget(self, position: int) -> None:
        """Forget the calls from a position on."""
        del self.calls[position:]
        self._scanned = min(self._scanned, position)

    def is_outer(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was made outside this forward, or is a view of one that was."""
        self._look()
        return id(tensor) not in self._made_here or storage_key(tensor) in self._outer_storages

    def maker(self, tensor: torch.Tensor) -> TorchCall | None:
        """The last call that returned a tensor, by itself and not in a list; None for no call of this path."""
        self._look()
        return self._makers.get(id(tensor))

    def sharing(self, tensor: torch.Tensor) -> set[int]:
        """Ids of the other results of this path that share memory with a tensor."""
        self._look()
        return self._results_in.get(storage_key(tensor), set()) - {id(tensor)}

    def _look(self) -> None:
        # Only the calls since the last look, or a forward with many updates would take quadratic time.
        for call in self.calls[self._scanned :]:
            # A view of an input is made by a call, so that its id says nothing: the storage does.
            for argument in tensors((call.args, call.kwargs)):
                if id(argument) not in self._made_here:
                    self._outer_storages.add(storage_key(argument))
            for result in tensors(call.result):
                self._results_in.setdefault(storage_key(result), set()).add(id(result))
            self._makers[id(call.result)] = call
        self._scanned = len(self.calls)
