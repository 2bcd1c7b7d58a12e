"""Rules that replace operators without an ONNX translation in a program of torch.export, node by node.

    x.contiguous(), dropout in eval             a copy, which the exporter's optimizer removes
    x.reshape(a, b), x.flatten(1)               x.view(a, b): one Reshape
    x.to(dtype), a & b, 1 - x, x.chunk(2)       the twins that have a translation
    x.add_(y)                                   x + y, where nothing else reads x's memory

As torch's own second trace writes them: the file is the same. `RULES` has them by operator, `CONDITIONS` when they
hold, and `SIZED` those that need the sizes of the result. The shapes of results are read from `Node.meta["val"]`. The
node that computes a size is found, or added from the sizes of the program's inputs: of `n * 49` a product of such, of
`n // 2` only where a node has it already. A size's expression is `SymInt.node.expr`. If that moves, sizes are unknown,
and torch decomposes the program.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

_aten = torch.ops.aten
_IN_PLACE = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "div_.Tensor", "relu_.default", "silu_.default")
_TAG = torch.Tag.maybe_aliasing_or_mutating
_WRITES = [getattr(getattr(_aten, name), overload) for name, overload in (one.split(".") for one in _IN_PLACE)]
_CASTS = (_aten.to.device, _aten.to.dtype, _aten.to.dtype_layout, _aten.to.other, _aten.type_as.default)
SIZED = (_aten.flatten.using_ints, _aten.unflatten.int, _aten.view_as.default, _aten.expand_as.default)


class _Recipe(NamedTuple):
    """How a size is made: a number, a node there is, a dimension of an input, or the product of several."""

    made: int | fx.Node | tuple[fx.Node, int] | list[_Recipe]
    value: Any


def size_recipe(node: fx.Node, length: Any) -> _Recipe | None:
    """How to compute a size before `node`; None where that takes more than a product."""
    if isinstance(length, int):
        return _Recipe(length, length)
    expression = getattr(getattr(length, "node", None), "expr", None)
    if expression is None:
        return None
    return _by_expression(node, expression, length)


def _by_expression(node: fx.Node, expression: Any, value: Any = None) -> _Recipe | None:
    if expression.is_Integer:
        return _Recipe(int(expression), int(expression))
    if (there := _there(node, expression)) is not None:
        return there
    factors = [_by_expression(node, factor) for factor in expression.args] if expression.is_Mul else [None]
    known = [factor for factor in factors if factor is not None]
    if len(known) < len(factors):
        return None
    return _Recipe(known, functools.reduce(operator.mul, (one.value for one in known)))


def _there(node: fx.Node, expression: Any) -> _Recipe | None:
    """The node before `node` that has a size, or the last dimension of an input that does."""
    places: list[_Recipe] = []
    for one in itertools.takewhile(lambda other: other is not node, node.graph.nodes):
        found = one.meta.get("val")
        if _is(found, expression):
            return _Recipe(one, found)
        if one.op == "placeholder" and isinstance(found, torch.Tensor):
            places += [_Recipe((one, axis), n) for axis, n in enumerate(found.shape) if _is(n, expression)]
    return places[-1] if places else None


def _is(size: Any, expression: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr == expression)


def size_of(node: fx.Node, length: Any) -> Any:
    """The number, or the node that computes it, added where there is none. `size_recipe` must know it."""
    recipe = size_recipe(node, length)
    assert recipe is not None
    return _made(node, recipe)


def _made(node: fx.Node, recipe: _Recipe) -> Any:
    graph = node.graph
    if isinstance(recipe.made, tuple):
        last = [one for one in graph.nodes if one.op == "placeholder"][-1]
        with graph.inserting_after(last):
            made = graph.call_function(torch.ops.aten.sym_size.int, recipe.made)
    elif isinstance(recipe.made, list):
        made, value = _made(node, recipe.made[0]), recipe.made[0].value
        for one in recipe.made[1:]:
            factor, value = _made(node, one), value * one.value
            with graph.inserting_before(node):
                made = graph.call_function(operator.mul, (made, factor))
            made.meta["val"] = value
        return made
    else:
        return recipe.made
    made.meta["val"] = recipe.value
    return made


def _value(node: Any) -> Any:
    return node.meta["val"]


def _becomes(node: fx.Node, target: Any, *args: Any, **kwargs: Any) -> None:
    node.target, node.args, node.kwargs = target, args, kwargs


def _twin(target: Any) -> Callable[[fx.Node], None]:
    """Another operator of the same arguments."""
    return lambda node: _becomes(node, target, *node.args)


def _copied(node: fx.Node) -> None:
    _becomes(node, _aten.clone.default, node.args[0])


def _passed(node: fx.Node) -> None:
    """What reads the node reads its input instead. An output keeps its name, by which the program knows it."""
    _copied(node)
    node.replace_all_uses_with(node.all_input_nodes[0], delete_user_cb=lambda user: user.op != "output")


def _ordered(node: fx.Node) -> None:
    _becomes(
        node, _aten.clone.default, node.args[0], memory_format=node.kwargs.get("memory_format", torch.contiguous_format)
    )


def _cast(node: fx.Node) -> None:
    made, given = _value(node), _value(node.args[0])
    moved = {} if made.device == given.device else {"device": made.device}
    if made.dtype == given.dtype and not moved:
        _passed(node)
    else:
        _becomes(node, _aten._to_copy.default, node.args[0], dtype=made.dtype, **moved)


def _viewed(node: fx.Node, sizes: Any = None) -> None:
    given = node.args[0]
    with node.graph.inserting_before(node):
        # A view of what lies in another order fails.
        whole = node.graph.call_function(_aten.clone.default, (given,), {"memory_format": torch.contiguous_format})
    whole.meta = {**node.meta, "val": _value(given)}
    _becomes(node, _aten.view.default, whole, sizes if sizes is not None else node.args[1])


def _viewed_in_full(node: fx.Node) -> None:
    _viewed(node, [size_of(node, length) for length in _value(node).shape])


def _expanded(node: fx.Node) -> None:
    _becomes(node, _aten.expand.default, node.args[0], [size_of(node, length) for length in _value(node).shape])


def _split(node: fx.Node) -> None:
    axis = _axis(node)
    parts = int(node.args[1])  # type: ignore[arg-type]
    _becomes(node, _aten.split.Tensor, node.args[0], -(-_value(node.args[0]).shape[axis] // parts), axis)


def _axis(node: fx.Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)


def _normalized(node: fx.Node) -> None:
    """Batch normalization in eval: the first of three results."""
    x, weight, bias, mean, variance, _, momentum, eps, *_ = node.args
    _becomes(node, _aten._native_batch_norm_legit_no_training.default, x, weight, bias, mean, variance, momentum, eps)
    with node.graph.inserting_after(node):
        first = node.graph.call_function(operator.getitem, (node, 0))
    first.meta = dict(node.meta)
    node.replace_all_uses_with(first, delete_user_cb=lambda user: user is not first)
    value = _value(node)
    node.meta["val"] = (value, value.new_empty(0), value.new_empty(0))


def _averaged(node: fx.Node) -> None:
    _becomes(node, _aten.mean.dim, node.args[0], [-1, -2], True)


def _out_of_place(node: fx.Node) -> None:
    """The same without a write: what reads the memory afterwards reads the result."""
    written = node.args[0]
    assert isinstance(written, fx.Node)
    later = set(itertools.dropwhile(lambda one: one is not node, node.graph.nodes)) - {node}
    written.replace_all_uses_with(node, delete_user_cb=lambda user: user in later)
    node.target = _without_write(node.target)


def _without_write(target: Any) -> Any:
    packet = getattr(_aten, target._schema.name.removeprefix("aten::").removesuffix("_"))
    return getattr(packet, target._schema.overload_name or "default")


# ------------------------------------------------------------------ conditions
def _is_idle(node: fx.Node) -> bool:
    """Whether a dropout is one in eval."""
    return len(node.args) == 3 and node.args[2] is False


def _keeps_order(node: fx.Node) -> bool:
    """Whether a cast leaves the order in memory as it is."""
    return node.kwargs.get("memory_format") in (None, torch.preserve_format)


def _sizes_known(node: fx.Node) -> bool:
    return all(size_recipe(node, length) is not None for length in _value(node).shape)


def _splits_a_number(node: fx.Node) -> bool:
    return isinstance(_value(node.args[0]).shape[_axis(node)], int)


def _plain_difference(node: fx.Node) -> bool:
    return len(node.args) == 2 and not node.kwargs


def _with_statistics(node: fx.Node) -> bool:
    kept = len(node.args) == 9 and node.args[5] is False and None not in node.args[3:5]
    return kept and all(user.op != "output" for user in node.users)


def _to_one(node: fx.Node) -> bool:
    return list(node.args[1]) == [1, 1]  # type: ignore[arg-type]


def _has_its_own_memory(node: fx.Node) -> bool:
    """Whether nothing but the node reads the memory that it writes to by another name, in one dtype."""
    written = node.args[0]
    if not isinstance(written, fx.Node) or written.op != "call_function" or _may_alias(written.target):
        return False
    tensors = [one for one in node.all_input_nodes if isinstance(_value(one), torch.Tensor)]
    if any(_value(one).dtype != _value(written).dtype for one in tensors):
        return False
    return all(user is node or (user.op != "output" and not _may_alias(user.target)) for user in written.users)


def _may_alias(target: Any) -> bool:
    """Whether an operator's result may be a view of its input. A write gives what it wrote into, by another name."""
    if target in _WRITES or target is _aten.batch_norm.default:  # in eval it changes no statistics
        return False
    return getattr(target, "_schema", None) is None or gives_its_input(target)


def gives_its_input(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator writes into its input, or may give it out, as it is or as a view."""
    return any(one.alias_info is not None for one in operator._schema.arguments) or _TAG in operator.tags


RULES: dict[Any, Callable[[fx.Node], None]] = {
    **dict.fromkeys((_aten.dropout.default, _aten.lift_fresh_copy.default), _copied),
    **dict.fromkeys((_aten.alias.default, _aten.detach.default, _aten.detach_.default), _passed),
    **dict.fromkeys(_CASTS, _cast),
    **dict.fromkeys(_WRITES, _out_of_place),
    **dict.fromkeys((_aten.flatten.using_ints, _aten.unflatten.int, _aten.view_as.default), _viewed_in_full),
    _aten.adaptive_avg_pool2d.default: _averaged,
    _aten.batch_norm.default: _normalized,
    _aten.chunk.default: _split,
    _aten.contiguous.default: _ordered,
    _aten.expand_as.default: _expanded,
    _aten.max.other: _twin(_aten.maximum.default),
    _aten.min.other: _twin(_aten.minimum.default),
    _aten.reshape.default: _viewed,
    _aten.rsub.Scalar: lambda node: _becomes(node, _aten.sub.Tensor, node.args[1], node.args[0]),
    _aten.square.default: lambda node: _becomes(node, _aten.pow.Tensor_Scalar, node.args[0], 2),
    _aten.swapaxes.default: _twin(_aten.transpose.int),
    _aten.__and__.Tensor: _twin(_aten.bitwise_and.Tensor),
    _aten.__or__.Tensor: _twin(_aten.bitwise_or.Tensor),
}  # fmt: skip
CONDITIONS: dict[Any, Callable[[fx.Node], bool]] = {
    **dict.fromkeys(_WRITES, _has_its_own_memory),
    **dict.fromkeys(_CASTS, _keeps_order),
    **dict.fromkeys(SIZED, _sizes_known),
    _aten.adaptive_avg_pool2d.default: _to_one,
    _aten.batch_norm.default: _with_statistics,
    _aten.chunk.default: _splits_a_number,
    _aten.dropout.default: _is_idle,
    _aten.rsub.Scalar: _plain_difference,
}
