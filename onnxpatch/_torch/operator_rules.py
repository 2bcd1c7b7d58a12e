"""How operators without a translation are written in ONNX's way, by the node, in a program of torch.export.

    x.contiguous(), dropout in eval             a copy, which the exporter's optimizer removes
    x.reshape(a, b), x.flatten(1)               x.view(a, b): one Reshape
    x.to(dtype), a & b, 1 - x, x.chunk(2)       the twins that have a translation
    x.add_(y)                                   x + y, where nothing else reads x's memory

As torch's own second trace writes them: the file is the same. `RULES` has them by operator, `CONDITIONS` when they
hold, and `SIZED` those that need the sizes of the result. The shapes of results are read from `Node.meta["val"]`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from onnxpatch._torch.size_nodes import size_of, size_recipe

__all__ = ["CONDITIONS", "RULES", "SIZED"]

_aten = torch.ops.aten
_IN_PLACE = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "div_.Tensor", "relu_.default", "silu_.default")


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
    if _value(node).dtype == _value(node.args[0]).dtype:
        _passed(node)
    else:
        _becomes(node, _aten._to_copy.default, node.args[0], dtype=_value(node).dtype)


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
    later = set(_after(node))
    written.replace_all_uses_with(node, delete_user_cb=lambda user: user in later)
    node.target = _without_write(node.target)


def _without_write(target: Any) -> Any:
    packet = getattr(_aten, target._schema.name.removeprefix("aten::").removesuffix("_"))
    return getattr(packet, target._schema.overload_name or "default")


def _after(node: fx.Node) -> list[fx.Node]:
    found, one = [], node.next
    while one.op != "root":
        found.append(one)
        one = one.next
    return found


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
    schema = getattr(target, "_schema", None)
    if schema is None:
        return True
    return any(one.alias_info is not None for one in schema.arguments) or _TAG in target.tags


_TAG = torch.Tag.maybe_aliasing_or_mutating
_WRITES = [getattr(getattr(_aten, name), overload) for name, overload in (one.split(".") for one in _IN_PLACE)]
_CASTS = (_aten.to.device, _aten.to.dtype, _aten.to.dtype_layout, _aten.to.other, _aten.type_as.default)
RULES: dict[Any, Callable[[fx.Node], None]] = {
    **dict.fromkeys((_aten.dropout.default, _aten.lift_fresh_copy.default), _copied),
    **dict.fromkeys((_aten.alias.default, _aten.detach.default, _aten.detach_.default), _passed),
    **dict.fromkeys(_CASTS, _cast),
    **dict.fromkeys(_WRITES, _out_of_place),
    **dict.fromkeys(
        (_aten.flatten.using_ints, _aten.unflatten.int, _aten.view_as.default), _viewed_in_full
    ),
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
    _aten.adaptive_avg_pool2d.default: _to_one,
    _aten.batch_norm.default: _with_statistics,
    _aten.chunk.default: _splits_a_number,
    _aten.dropout.default: _is_idle,
    _aten.expand_as.default: _sizes_known,
    _aten.flatten.using_ints: _sizes_known,
    _aten.rsub.Scalar: _plain_difference,
    _aten.unflatten.int: _sizes_known,
    _aten.view_as.default: _sizes_known,
}
SIZED = (_aten.flatten.using_ints, _aten.unflatten.int, _aten.view_as.default, _aten.expand_as.default)
