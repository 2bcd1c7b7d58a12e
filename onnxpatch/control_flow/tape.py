"""What a forward did, one torch call after another: enough to run a part of it again on other tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import free_symbols, substitute_symbols
from onnxpatch._torch.function_modes import unseen

# Calls that give constants: run once outside, and used as they are inside a branch.
_CONSTANTS = frozenset({torch.tensor, torch.as_tensor, torch.from_numpy, torch.asarray})
_RANDOM = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial"}
    | {"normal", "poisson", "uniform_", "normal_", "bernoulli_", "random_", "exponential_", "cauchy_", "geometric_"}
    | {"log_normal_", "rrelu", "gumbel_softmax", "fractional_max_pool2d"}
)
# Multiply-adds: what one element of the result costs, by the name of the call; everything else costs one.
_HEAVY = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "scaled_dot_product_attention"}
    | {"__matmul__", "__rmatmul__", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "tensordot"}
    | {"multi_head_attention_forward", "lstm", "gru", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
)


@dataclass(eq=False)
class Entry:
    """One call: what was called, with what, and what came back. mutates: it writes into a tensor that it was given."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    mutates: bool = False

    @property
    def constant(self) -> bool:
        return self.function in _CONSTANTS and not any(True for _ in leaves((self.args, self.kwargs)))

    def needs(self) -> set[Any]:
        return names_in((self.args, self.kwargs))

    def gives(self) -> set[Any]:
        found: set[Any] = set()
        for leaf in leaves(self.result):
            found.add(id(leaf)) if isinstance(leaf, torch.Tensor) else found.update(free_symbols(leaf))
            if isinstance(leaf, torch.Tensor):
                found.update(*(free_symbols(size) for size in sizes_of(leaf)))
        return found


def sizes_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The symbolic sizes of a tensor; nothing while tracing, where sizes are tensors themselves."""
    return () if exporting() == "trace" else tuple(s for s in tensor.shape if isinstance(s, torch.SymInt))


def leaves(value: Any) -> Iterator[Any]:
    """Tensors and symbolic numbers in arguments or results, depth first."""
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors among `leaves(value)`."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def plain_values(value: Any) -> Any:
    """The Python values in arguments or results, tensors and symbolic numbers left out; comparable."""
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        return "*"
    if isinstance(value, tuple | list):
        return [plain_values(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): plain_values(inner) for key, inner in value.items()}
    if isinstance(value, slice):
        return plain_values((value.start, value.stop, value.step))
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__


def names_in(value: Any) -> set[Any]:
    """What a value depends on: ids of tensors, and symbols of symbolic numbers."""
    found: set[Any] = set()
    for leaf in leaves(value):
        found.add(id(leaf)) if isinstance(leaf, torch.Tensor) else found.update(free_symbols(leaf))
    return found


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a nest of containers with every leaf changed."""
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        return change(value)
    if isinstance(value, torch.Size):
        return tuple(rebuilt(inner, change) for inner in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(inner, change) for inner in value))
    if isinstance(value, tuple | list):
        return type(value)(rebuilt(inner, change) for inner in value)
    if isinstance(value, dict):
        return {key: rebuilt(inner, change) for key, inner in value.items()}
    if isinstance(value, slice):
        return slice(*(rebuilt(inner, change) for inner in (value.start, value.stop, value.step)))
    return value


class Rebinding:
    """Which tensors and symbols stand for which while a part of a tape runs again."""

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.symbols: dict[Any, Any] = {}

    def child(self) -> Rebinding:
        made = Rebinding()
        made.tensors, made.symbols = dict(self.tensors), dict(self.symbols)
        return made

    def __call__(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.tensors.get(id(leaf), leaf)
        return substitute_symbols(leaf, self.symbols) if self.symbols else leaf

    def bind(self, old: Any, new: Any) -> None:
        """Let `new` stand for `old`, leaf by leaf; symbols in the sizes follow."""
        for before, after in zip(leaves(old), leaves(new), strict=True):
            if isinstance(before, torch.Tensor):
                self.tensors[id(before)] = after
                if exporting() != "trace":
                    for size, other in zip(before.shape, after.shape, strict=False):
                        self._bind_symbol(size, other)
            else:
                self._bind_symbol(before, after)

    def _bind_symbol(self, old: Any, new: Any) -> None:
        symbols = free_symbols(old)
        if len(symbols) == 1 and old.node.expr.is_Symbol and str(old.node.expr) != str(getattr(new, "node", new)):
            self.symbols[old.node.expr] = new

    def run(self, entries: Iterable[Entry]) -> None:
        """Do the entries again, with what stands for their arguments."""
        for entry in entries:
            if entry.constant:
                continue
            args, kwargs = rebuilt(entry.args, self), rebuilt(entry.kwargs, self)
            self.bind(entry.result, entry.function(*args, **kwargs))


def pruned(entries: list[Entry], needed: set[Any]) -> list[Entry]:
    """The entries that `needed` depends on; adds to `needed` what they need in turn."""
    kept: list[Entry] = []
    for entry in reversed(entries):
        if entry.mutates or not needed.isdisjoint(entry.gives()):
            kept.append(entry)
            needed |= entry.needs()
    return kept[::-1]


def is_mutation(function: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a call writes into a tensor that it is given."""
    name = getattr(function, "__name__", "")
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or (name[2] == "i" and name[3:-2] in _OPERATORS)
    return name.endswith("_") or kwargs.get("out") is not None or kwargs.get("inplace") is True


_OPERATORS = frozenset(
    {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "div", "matmul"}
)


def is_random(function: Any, kwargs: dict[str, Any], args: tuple[Any, ...]) -> bool:
    """Whether a call draws random numbers."""
    name = getattr(function, "__name__", "")
    if "dropout" in name:
        return bool(kwargs.get("training", args[2] if len(args) > 2 else True))
    return name in _RANDOM


def target_of(entry: Entry) -> list[torch.Tensor]:
    """The tensors that a mutating entry writes into."""
    out = entry.kwargs.get("out")
    return tensors(out) if out is not None else tensors(entry.args[:1])


def work(entries: Iterable[Entry]) -> int:
    """Multiply-adds, roughly, at the example's sizes."""
    return sum(_work(entry) for entry in entries)


def _work(entry: Entry) -> int:
    result = tensors(entry.result)
    name = getattr(entry.function, "__name__", "")
    if not result or entry.constant or name in ("__get__", "size", "dim"):
        return 0
    size = max(_count(tensor) for tensor in result)
    if name not in _HEAVY:
        return size
    given = tensors((entry.args, entry.kwargs))
    inner = max((_count(tensor) // max(1, int_hint(tensor.shape[0])) for tensor in given if tensor.dim()), default=1)
    return size * max(1, inner)


def _count(tensor: torch.Tensor) -> int:
    total = 1
    for size in tensor.shape:
        total *= int_hint(size)
    return total


def int_hint(size: Any) -> int:
    """A size at the example, or 8 where it depends on data."""
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        return 8 if hint is None else int(hint)
    with unseen():
        return int(size)
