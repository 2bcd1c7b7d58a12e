"""Tells how a size was computed during an export, and what it is at other sizes of the inputs.

A relation such as "this size is twice that one" may hold at the example by chance. During an export, sizes are
expressions in the symbols of the dynamic dimensions. To see whether a relation always holds, other numbers are put in:

    y.shape[2] is 2*h, x.shape[2] is h      (20, 10), (2, 1), (34, 17) ...
    y.shape[2] is k,   x.shape[2] is h      (20, 10), (57, 3), (8, 31) ...

A SymInt's sympy expression (`.node.expr`, `ShapeEnv.replace`) is used, and under torch.jit.trace the sizes that
`traced_sizes` computes again. Where one of them has moved, nothing is known, and callers take the form for any size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import torch

from onnxpatch._torch.cond import by_data
from onnxpatch._torch.function_modes import tracing_paused, unseen
from onnxpatch.process import undone

# What a value traced by torch.jit.trace was computed from is read from the TorchScript graph under construction
# (`torch._C._get_value_trace`). Where that is gone, every tensor counts as data: patches that ask are inactive then.
_SIZE_NODES = ("aten::size", "prim::Constant", "aten::sym_size", "aten::numel", "aten::len", "aten::dim")


def traced_value(tensor: torch.Tensor) -> Any | None:
    """The value of the TorchScript graph that `tensor` is; None where nothing is traced."""
    get: Callable[[torch.Tensor], Any] = getattr(torch._C, "_get_value_trace", lambda tensor: None)
    try:
        if not isinstance(tensor, torch.nn.Parameter):
            return get(tensor)
        # One that the trace does not have, as in a branch, becomes a constant that nothing uses. With a gradient, torch
        # refuses it with an error that prints it; what this takes is traced, too, and ends the process.
        with unseen():
            given = tensor.requires_grad
            with undone(lambda: tensor.requires_grad_(given)):
                return get(tensor.requires_grad_(False))
    except RuntimeError:  # a tensor with a gradient that the trace cannot take in as a constant
        return None


def _traced_node(tensor: torch.Tensor) -> Any | None:
    value = traced_value(tensor)
    return None if value is None else value.node()


def spread_by_sizes(tensor: torch.Tensor) -> bool:
    """Whether torch.jit.trace is running and `tensor` is another one repeated as often as sizes say."""
    node = _traced_node(tensor) if torch.jit.is_tracing() else None  # type: ignore[attr-defined]
    if node is None or node.kind() not in ("aten::repeat", "aten::expand", "aten::tile"):
        return False
    return any(one.node().kind() != "prim::Constant" for one in list(node.inputs())[1].node().inputs())


# The limit bounds the walk, which starts anew for every tensor that is asked about. A tensor beyond it counts as data:
# then a patch is inactive, which is right too.
def traced_from_sizes(tensor: torch.Tensor, limit: int = 200) -> bool:
    """Whether torch.jit.trace is running and `tensor` was computed from sizes and constants only, sizes among them."""
    if not torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    node = _traced_node(tensor)
    if node is None or node.kind() == "prim::Constant":
        return False
    kinds = _kinds_above(next(node.outputs()), set(), limit)
    return kinds is not None and "aten::size" in kinds


def _kinds_above(value: Any, known: set[int], limit: int) -> set[str] | None:
    """The kinds of the nodes that a value of the trace's graph is computed by, up to sizes, constants and the values
    `known`; None where there are too many, or something else is among them: an input, or what is made of nothing."""
    pending, kinds, seen = [value], set[str](), {*known}
    while pending and limit:
        value = pending.pop()
        # A value may be reached many ways: without this the limit would be used up by one of them.
        if value.unique() in seen:
            continue
        seen.add(value.unique())
        limit -= 1
        kind, inputs = value.node().kind(), list(value.node().inputs())
        kinds.add(kind)
        if kind in _SIZE_NODES:
            continue
        if not inputs and kind != "prim::ListConstruct":
            return None
        pending += inputs
    return None if pending else kinds


def static_number(tensor: torch.Tensor) -> int | float | bool | None:
    """The value of a 0-d tensor of the running trace that was computed from sizes, if it is the same for all inputs."""
    if not torch.jit.is_tracing():  # type: ignore[attr-defined]
        return None
    from onnxpatch._torch import traced_sizes

    return traced_sizes.fixed_number(tensor)


def decided_by_data(x: torch.Tensor, axes: Iterable[int]) -> bool:
    """Whether the size of one of these axes depends on values in a tensor, such as the number of rows of `x[mask]`."""
    shape: Sequence[object] = x.shape
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        from onnxpatch._torch.traced_sizes import (
            chosen_in_a_body,
            declared_axes,
            sizes_without_data,
            symbolic_shape,
        )

        if chosen_in_a_body(x):
            return True
        fixed = declared_axes(x, axes := list(axes)) or sizes_without_data(x)
        shape = () if fixed else symbolic_shape(x)
    sizes = [shape[axis] for axis in axes] if shape else []
    return any(by_data(size) for size in sizes if isinstance(size, torch.SymInt))


def symbolic_number(tensor: torch.Tensor) -> int | float | bool | torch.SymInt | torch.SymFloat | None:
    """The same in symbols of the declared dimensions; None where it is not known."""
    if not torch.jit.is_tracing():  # type: ignore[attr-defined]
        return None
    from onnxpatch._torch import traced_sizes

    return traced_sizes.number_in_symbols(tensor)


def traced_from(tensor: torch.Tensor, sources: Iterable[torch.Tensor], limit: int = 200, sizes: bool = True) -> bool:
    """Whether torch.jit.trace is running and all data in `tensor` comes from `sources` and constants; sizes aside.

    sizes: whether it may be made with sizes, too, as what is cut to one.
    """
    if not torch.jit.is_tracing() or _traced_node(tensor) is None:  # type: ignore[attr-defined]
        return False
    known = {value.unique() for source in sources if (value := traced_value(source)) is not None}
    kinds = _kinds_above(traced_value(tensor), known, limit)
    return kinds is not None and (sizes or "aten::size" not in kinds)


# A SymFloat's sympy expression (`.node.expr`) is simplified and made a SymInt again (`ShapeEnv.create_symintnode`).
# Where that fails, the unsimplified number is used, which is right too, but which the solver may refuse.
def split_fraction(value: torch.SymFloat) -> tuple[torch.SymInt, float] | None:
    """(size, fraction) when `value` is a whole size plus a constant fraction in [0, 1), however it was computed."""
    try:
        import sympy
        from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat

        divided = value.node.expr.replace(FloatTrueDiv, lambda a, b: a / b).replace(IntTrueDiv, lambda a, b: a / b)
        # sympy knows nothing of torch's own functions, and cancels no quotient of theirs.
        terms = sympy.expand(divided.replace(ToFloat, lambda a: a))
        fraction, rest = terms.as_coeff_Add()
        coefficient, symbols = rest.as_coeff_Mul()
        # Scales are floats: 2.0 * n / 2.0 has a coefficient of nearly 1.
        if not (abs(coefficient - 1) < 1e-9 and symbols.is_integer and -1e-9 < fraction < 1 - 1e-9):
            return None
        # The hint was computed in floats: 0.1 * 30 is 3.0000000000000004, and 7 may be 6.999999999.
        hint = int(float(value.node.hint) + 1e-9)
        return value.node.shape_env.create_symintnode(symbols, hint=hint), max(0.0, float(fraction))
    except (ImportError, AttributeError, TypeError):
        return None


# sympy knows little of a quotient that was rounded, and torch cannot make nodes of one anew.
def rounded_quotient(value: torch.SymFloat, up: bool = False) -> torch.SymInt | None:
    """A size divided by a whole number and rounded, as a division of whole numbers; None where `value` is no such."""
    try:
        from torch.utils._sympy.functions import FloatTrueDiv, IntTrueDiv, ToFloat

        if not isinstance(quotient := value.node.expr, FloatTrueDiv | IntTrueDiv):
            return None
        size, divisor = quotient.args[0].replace(ToFloat, lambda a: a), quotient.args[1]
        if not size.is_integer or not 1 <= divisor == int(divisor):
            return None
        found: torch.SymInt = value.node.shape_env.create_symintnode(size, hint=None)
        return (found + (int(divisor) - 1) * up) // int(divisor) if never_negative(found) else None
    except (ImportError, AttributeError, TypeError):
        return None


# A SymInt's sympy expression is looked into (`torch.utils._sympy.functions.Mod`, `PythonMod`). Where they have moved,
# sizes are left as the model wrote them: right too, and slower to export.
def missing_to(value: torch.SymInt, step: int | torch.SymInt, itself: bool = False) -> torch.SymInt | None:
    """The size n that `value` was computed from, if it is `step - n % step` or `-n`; itself: if it is `n % step`."""
    try:
        from torch.utils._sympy.functions import Mod, PythonMod

        node, by = value.node, step.node.expr if isinstance(step, torch.SymInt) else step
        rest = node.expr if itself else by - node.expr
        if isinstance(rest, Mod | PythonMod) and rest.args[1] == by:
            expression, hint = rest.args[0], None
        # Of a sum, sympy may say so too: in `a - b` it goes by an order of its own.
        elif not itself and node.expr.could_extract_minus_sign() and not node.expr.is_Add:
            expression, hint = -node.expr, -int(node.hint)
        else:
            return None
        found: torch.SymInt = node.shape_env.create_symintnode(expression, hint=hint)
        return found
    except (ImportError, AttributeError, TypeError):
        return None


def example_of(size: object) -> int | None:
    """What a size is in the example call, without fixing it there; None where it depends on data."""
    number = example_number(size)
    return None if number is None else int(number)


# A SymInt's `.node.hint` is its value in the example; where it is gone, nothing is known of sizes but that they move.
def example_number(value: object) -> Any:
    """What a number made of sizes, or a truth about them, is in the example call; None where it depends on data."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        try:
            kind = {torch.SymInt: int, torch.SymFloat: float}.get(type(value), bool)
            return kind(value.node.hint) if value.node.hint is not None else None
        except (AttributeError, TypeError, RuntimeError):
            return None
    if isinstance(value, torch.Tensor):
        with tracing_paused():
            return value.item()
    return value


# A SymInt's bounds are those of its sympy expression (`torch.utils._sympy.value_ranges`); under trace the operators
# that made a 0-d tensor are read off the graph. Where these have moved, any number may be negative: right too.
def never_negative(value: object) -> bool:
    """Whether a number computed from sizes is at least 0 at all sizes, as far as that can be told."""
    if isinstance(value, torch.SymInt):
        try:
            from torch.utils._sympy.value_ranges import bound_sympy

            node, ranges = value.node, value.node.shape_env.var_to_range
            least = _least(node.shape_env.replace(node.expr))
            return bool(bound_sympy(least, {s: ranges[s] for s in least.free_symbols}).lower >= 0)
        except (ImportError, AttributeError, KeyError, TypeError):
            return False
    if isinstance(value, torch.Tensor):
        node = _traced_node(value)
        return node is not None and _not_negative(node, 20)
    return isinstance(value, int | float) and value >= 0


# A SymInt's `.node.maybe_as_int()` is its value where its formula has one, such as n - n. Where that is gone, none has.
def constant_size(value: object) -> int | None:
    """The value of a size that is the same at all sizes; None for another one."""
    if not isinstance(value, torch.SymInt):
        return int(value) if isinstance(value, int) else None
    try:
        known = value.node.maybe_as_int()
    except AttributeError:
        return None
    return None if known is None else int(known)


# The same sympy classes. Where they have moved, a quotient counts as right: it is then that of the exporter.
def divides_negative(value: torch.SymInt) -> bool:
    """Whether a quotient divides, in its formula, what may be negative. sympy makes `(16 - n) // 2` to `8 + -n // 2`,
    and -n // 2 is rounded towards zero in the graph."""
    try:
        from torch.utils._sympy.functions import FloorDiv
        from torch.utils._sympy.value_ranges import bound_sympy

        ranges = value.node.shape_env.var_to_range
        divided = [quotient.args[0] for quotient in value.node.expr.atoms(FloorDiv)]
        known = [bound_sympy(one, {s: ranges[s] for s in one.free_symbols}).lower for one in divided]
        return any(not lower >= 0 for lower in known)
    except (ImportError, AttributeError, KeyError, TypeError):
        return False


def _least(expression: object) -> Any:
    """An expression that is at most as large, with a quotient rounded down by what it is at least: of
    `(n + 3) // 4 * 4 - n`, which is 0 to 3, it leaves 0. The bounds of `n` alone tell nothing about it."""
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    terms = []
    for term in sympy.Add.make_args(expression):
        factor, rest = term.as_coeff_Mul()
        if isinstance(rest, FloorDiv) and rest.args[1].is_Integer and rest.args[1] > 0:
            whole, divisor = rest.args
            rest = (whole - (divisor - 1 if factor > 0 else 0)) / divisor
        terms.append(factor * rest)
    simple = sympy.expand(sympy.Add(*terms))
    return simple if simple.is_number else expression


_GROWING = ("aten::add", "aten::mul", "aten::floor_divide", "aten::div", "aten::maximum")
_KEEPING = ("prim::NumToTensor", "aten::to", "aten::Int", "aten::floor", "aten::ceil", "aten::sqrt", "aten::detach")


def _not_negative(node: Any, limit: int) -> bool:
    kind, inputs = node.kind(), [value.node() for value in node.inputs()]
    if kind in ("aten::size", "aten::numel"):
        return True
    if kind == "prim::Constant":
        number = node.output().toIValue()
        return bool(number >= 0) if isinstance(number, int | float | torch.Tensor) else False
    if kind == "aten::remainder":  # it has the sign of the divisor
        return limit > 0 and _not_negative(inputs[1], limit - 1)
    if kind in _GROWING:
        return limit > 0 and all(_not_negative(one, limit - 1) for one in inputs[:2])
    return kind in _KEEPING and limit > 0 and _not_negative(inputs[0], limit - 1)


Relation = Literal["equal", "different", "ordered"]

# by the name of the sympy class (dynamo), or the kind of the TorchScript node (trace)
_RELATIONS: dict[str, Relation] = {
    **dict.fromkeys(("Equality", "aten::eq"), "equal"),
    **dict.fromkeys(("Unequality", "aten::ne"), "different"),
    **dict.fromkeys(("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"), "ordered"),
    **dict.fromkeys(("aten::lt", "aten::le", "aten::gt", "aten::ge"), "ordered"),
}


def relation_of(value: object) -> Relation | None:
    """Which comparison of sizes a SymBool, or a bool tensor under trace, is the answer of; None if it is none."""
    if isinstance(value, torch.SymBool):
        return _RELATIONS.get(type(value.node.expr).__name__)
    node = _traced_node(value) if isinstance(value, torch.Tensor) else None
    return None if node is None else _RELATIONS.get(node.kind())


_SAMPLES = 40
_LARGEST = 300


def sampled_sizes(sizes: Sequence[int | torch.SymInt | torch.Tensor]) -> list[tuple[int, ...]] | None:
    """The values that `sizes` take together for some 40 sizes of the inputs, all at least 1; None if unknown.

    sizes: int, SymInt, or 0-d tensors of the running trace.
    """
    try:
        return list(_sampled([_expression(size) for size in sizes]))
    except (AttributeError, TypeError, ValueError, RuntimeError, ZeroDivisionError):
        return None


def _expression(size: int | torch.SymInt | torch.Tensor) -> Any:
    number = symbolic_number(size) if isinstance(size, torch.Tensor) else size
    if isinstance(number, torch.SymInt):
        return number.node.shape_env.replace(number.node.expr)
    if not isinstance(number, int):
        raise TypeError(f"not a size: {size}")
    return number


def _sampled(expressions: list[Any]) -> Iterator[tuple[int, ...]]:
    symbols = sorted(set().union(*(getattr(one, "free_symbols", ()) for one in expressions)), key=str)
    chosen = random.Random(0)
    for number in range(_SAMPLES if symbols else 1):
        # Small sizes too: there what is rounded differs most. All of 1 at first.
        largest = (8, 40, _LARGEST)[number % 3] if number else 1
        at = {symbol: chosen.randint(1, largest) for symbol in symbols}
        values = tuple(one if isinstance(one, int) else int(one.subs(at)) for one in expressions)
        if min(values) >= 1:
            yield values
