"""Tensors and symbolic numbers inside nested arguments and results: listing, replacing, naming and stacking them.

A *nest* is what a forward passes around: tuples, lists, dicts, sets and slices, with leaves in them. A leaf is a tensor
or a symbolic number (SymInt, SymFloat, SymBool). Everything else is a plain Python value.

    leaves(((x, 3), {"mask": m}))       -> x, m
    rebuilt(((x, 3), {"mask": m}), f)   -> ((f(x), 3), {"mask": f(m)})
    names_in(((x, s0 + 1), {}))         -> {id(x), s0}

A nest of numbers becomes one tensor, as torch.tensor makes it:

    torch.tensor([x.shape[0], 1])      [2], int64      stack of a 0-d tensor and a constant
    torch.tensor([[x.max(), 0.0]])     [1, 2], float   torch.tensor itself would detach x.max() into a number
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import torch

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import free_symbols

if TYPE_CHECKING:
    import sympy

SymbolicNumber: TypeAlias = torch.SymInt | torch.SymFloat | torch.SymBool
Leaf: TypeAlias = torch.Tensor | SymbolicNumber
Name: TypeAlias = "int | sympy.Symbol"
"""What a value depends on: the id of a tensor, or a symbol in a size."""

NestT = TypeVar("NestT")


class Unbound(tuple[torch.Tensor, ...]):
    """What `x.unbind(1)` gives where the number of rows depends on the input: each is taken when it is asked for.

    whole: the tensor, that axis first. take: what an index gives; rows: what a `for` iterates over. A tuple, so that
    torch.stack takes it; the tensor in it is never seen.
    """

    whole: torch.Tensor
    take: Callable[[object], object]
    rows: Iterable[object]

    @classmethod
    def of(cls, whole: torch.Tensor, take: Callable[[object], object], rows: Iterable[object]) -> Unbound:
        """The rows of `whole`."""
        made = cls((whole,))
        made.whole, made.take, made.rows = whole, take, rows
        return made

    def __getitem__(self, index: Any) -> Any:
        return self.take(index)

    def __iter__(self) -> Any:
        return iter(self.rows)


def entries_of(value: Iterable[object]) -> Iterable[object]:
    """Python's own entries of a container, also of a list that gives out others (`loops.rows.FilledList`)."""
    return list.__iter__(value) if isinstance(value, list) else value


def leaves(value: object) -> Iterator[Leaf]:
    """Tensors and symbolic numbers in a nest, depth first."""
    if isinstance(value, Unbound):
        yield value.whole
    elif isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for inner in entries_of(value):
            yield from leaves(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))


def tensors(value: object) -> list[torch.Tensor]:
    """The tensors among `leaves(value)`."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def names_in(value: object) -> set[Name]:
    """What a nest depends on: ids of its tensors, and the symbols in its symbolic numbers."""
    names: set[Name] = set()
    for leaf in leaves(value):
        names.add(id(leaf)) if isinstance(leaf, torch.Tensor) else names.update(free_symbols(leaf))
    return names


def names_and_size_symbols(value: object) -> set[Name]:
    """`names_in(value)`, and the symbols that are sizes of its tensors: what a call that returned `value` provides."""
    sizes = (size.node.expr for tensor in tensors(value) for size in symbolic_sizes(tensor))
    return names_in(value) | {size for size in sizes if size.is_Symbol}  # 2 * n does not say what n is


def symbolic_sizes(tensor: torch.Tensor) -> tuple[torch.SymInt, ...]:
    """The symbolic sizes of a tensor; none while tracing, where sizes are tensors themselves."""
    if exporting() == "trace":
        return ()
    sizes: tuple[object, ...] = tuple(tensor.shape)
    return tuple(size for size in sizes if isinstance(size, torch.SymInt))


def format_shape(tensor: torch.Tensor) -> tuple[str, ...]:
    """The sizes of a tensor as text, symbolic ones as expressions."""
    return tuple(str(size.node.expr if isinstance(size, torch.SymInt) else size) for size in tensor.shape)


def plain_values(value: object) -> object:
    """The Python values of a nest with "*" in place of every leaf; results can be compared with `==`."""
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        return "*"
    if isinstance(value, tuple | list):
        return [plain_values(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): plain_values(inner) for key, inner in value.items()}
    if isinstance(value, slice):
        return plain_values((value.start, value.stop, value.step))
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__


def same_nest(one: object, other: object) -> bool:
    """Whether two nests have the same leaves, and plain values that are equal."""
    pairs = zip(leaves(one), leaves(other), strict=False)
    return plain_values(one) == plain_values(other) and all(a is b for a, b in pairs)


def map_leaves(value: NestT, change: Callable[[Leaf], object]) -> NestT:
    """A copy of a nest with `change` applied to every leaf; containers keep their types."""
    return cast(NestT, _rebuilt(value, change))


def _rebuilt(value: object, change: Callable[[Leaf], object]) -> object:
    if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
        return change(value)
    if isinstance(value, tuple | list) and not isinstance(value, Unbound):
        return _made_like(value, [_rebuilt(inner, change) for inner in value])
    if isinstance(value, dict):
        return {key: _rebuilt(inner, change) for key, inner in value.items()}
    if isinstance(value, slice):
        return slice(*(_rebuilt(inner, change) for inner in (value.start, value.stop, value.step)))
    # A set has no leaves here: torch takes none as an argument, and what is rebuilt are arguments and results of calls.
    return value


def _made_like(value: object, parts: list[object]) -> object:
    if isinstance(value, torch.Size):  # a Size accepts ints only, and a change may put tensors in
        return tuple(parts)
    make: Callable[..., object] = type(value)
    # A named tuple is made of its fields one by one, a tuple of a list.
    return make(*parts) if isinstance(value, tuple) and hasattr(value, "_fields") else make(parts)


def has_graph_number(data: object) -> bool:
    """Whether a nest of lists and tuples has a tensor or a symbolic number in it."""
    if isinstance(data, list | tuple):
        return any(has_graph_number(inner) for inner in data)
    return isinstance(data, torch.Tensor | torch.SymInt | torch.SymFloat)


def stacked_numbers(data: object, dtype: torch.dtype | None) -> torch.Tensor:
    """A nest of numbers as one tensor. dtype: None for the one that torch.tensor would choose."""
    tensor = tensor_of(data)
    whole = not tensor.dtype.is_floating_point
    wanted = dtype or (tensor.dtype if whole else torch.get_default_dtype())
    return tensor if tensor.dtype == wanted else tensor.to(wanted)


def tensor_of(data: object) -> torch.Tensor:
    """A nest of numbers as one tensor, with the dtypes of its parts promoted."""
    if isinstance(data, list | tuple):
        return torch.stack(of_one_dtype(data))
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, torch.SymInt):
        return full_scalar(data, torch.int64)
    return full_scalar(data, torch.int64 if isinstance(data, int) and not isinstance(data, bool) else None)


def of_one_dtype(data: Iterable[object]) -> list[torch.Tensor]:
    """Numbers, or nests of them, as tensors whose dtypes are promoted."""
    found = [tensor_of(one) for one in data]
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in found))
    return [tensor.to(dtype) if tensor.dtype != dtype else tensor for tensor in found]


def full_scalar(number: object, dtype: torch.dtype | None) -> torch.Tensor:
    """A number, plain or symbolic, as a 0-d tensor. dtype: None for the default of its type."""
    # torch.tensor would take the example's value out of a symbolic number.
    return torch.full((), cast(float, number), dtype=dtype)


JOINS = (torch.stack, torch.cat, torch.concat, torch.concatenate)


class StackedRounds(list[object]):
    """The parts of a list that is joined; those of the loop's rounds are one tensor [rounds, ...]."""

    def __init__(self, before: list[torch.Tensor], rounds: torch.Tensor, after: list[torch.Tensor]) -> None:
        super().__init__([*before, rounds, *after])
        self.before, self.rounds, self.after = before, rounds, after


def joined_rounds(
    function: Callable[..., object],
    before: list[torch.Tensor],
    rounds: torch.Tensor,
    after: list[torch.Tensor],
    dim: int = 0,
) -> torch.Tensor:
    """`torch.stack` or `torch.cat` of a list with a loop's rounds in it: the parts of a `StackedRounds`."""
    dims = rounds.dim() - 1
    if function is torch.stack:
        at = dim % (dims + 1)
        middle = rounds.movedim(0, at)
        sides = [[part.unsqueeze(at) for part in side] for side in (before, after)]
    else:
        at = dim % dims
        middle = rounds.movedim(0, at).flatten(at, at + 1)
        sides = [before, after]
    return torch.cat([*sides[0], middle, *sides[1]], at) if any(sides) else middle
