"""Whether the paths' tensors have one shape at every size, as far as that can be known while exporting."""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch.control_flow.current_capture import latest
from onnxpatch.control_flow.merging.output_template import Slot
from onnxpatch.control_flow.path_explorer import Node
from onnxpatch.control_flow.tape import Entry, tensors

# Calls whose result has the shape of their largest tensor argument.
_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "true_divide", "pow", "neg", "abs", "relu", "sigmoid", "tanh", "exp", "log", "log1p"}
    | {"sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "erf", "gelu", "silu", "elu", "selu", "celu", "mish"}
    | {"leaky_relu", "softplus", "hardswish", "hardsigmoid", "hardtanh", "relu6", "clamp", "clamp_min", "clamp_max"}
    | {"clip", "floor", "ceil", "round", "trunc", "sign", "where", "maximum", "minimum", "nan_to_num", "clone"}
    | {"contiguous", "detach", "float", "double", "long", "int", "half", "bool", "to", "type_as", "softmax"}
    | {"log_softmax", "dropout", "layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm", "normalize"}
    | {"cumsum", "cumprod", "flip", "roll", "sort", "zeros_like", "ones_like", "full_like", "rand_like", "masked_fill"}
    | {"__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__div__"}
    | {"__pow__", "__rpow__", "__neg__", "__abs__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
    | {"__and__", "__or__", "__invert__", "__mod__", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"}
    | {"logical_and", "logical_or", "logical_not", "bitwise_not", "remainder", "fmod", "atan2", "lerp", "addcmul"}
)


def same_shape(values: list[Any], root: Node) -> bool:
    """Whether all values (of one slot) have the same sizes, whatever the sizes of the inputs are."""
    shaped = [value if isinstance(value, torch.Tensor) else None for value in values]
    if all(value is shaped[0] for value in shaped):
        return True
    if any(value is None for value in shaped):
        return all(value is None or value.dim() == 0 for value in shaped)
    found = [value for value in shaped if value is not None]
    if found[0].dim() == 0:
        return True
    shadow = _shadow()
    if shadow is None:
        return len({_spelled(value) for value in found}) == 1
    if not any(shadow.unknown(value) for value in found):
        known = [shadow.get(value) for value in found]
        return len({_spelled(v if t is None else t) for v, t in zip(found, known, strict=True)}) == 1
    made: dict[int, Entry] = {}
    for leaf in root.leaves():
        made.update((id(t), entry) for entry in leaf.tape for t in tensors(entry.result))
    return len({_origin(value, made) for value in found}) == 1


def varying_dim(slot: Slot) -> int | None:
    """The one dimension, other than the first, in which the paths' symbolic sizes differ or depend on data."""
    found = [_spelled(value) for value in slot.present if isinstance(value, torch.Tensor)]
    symbols: list[Any] = [value.shape for value in slot.present if isinstance(value, torch.Tensor)]
    if not found or _shadow() is not None:
        return None
    varying = [
        dim
        for dim in range(len(found[0]))
        if len({sizes[dim] for sizes in found}) > 1
        or any(isinstance(shape[dim], torch.SymInt) and not shape[dim].node.has_hint() for shape in symbols)
    ]
    return varying[0] if len(varying) == 1 and varying[0] else None


def _shadow() -> Any:
    capture = latest()
    return None if capture is None else capture.shadow


def _spelled(tensor: torch.Tensor) -> tuple[str, ...]:
    return tuple(str(size.node.expr) if isinstance(size, torch.SymInt) else str(size) for size in tensor.shape)


def _origin(tensor: torch.Tensor, made: dict[int, Entry]) -> Any:
    """Something equal for tensors that must have equal shapes: the tensor whose shape was handed on, and how."""
    entry = made.get(id(tensor))
    if entry is None:
        return id(tensor)
    name = getattr(entry.function, "__name__", "")
    given = [t for t in tensors((entry.args, entry.kwargs)) if t.shape == tensor.shape]
    if name in _ELEMENTWISE and given:
        return _origin(given[0], made)
    if name == "linear":
        return ("linear", _origin(entry.args[0], made), int(tensor.shape[-1]))
    return (id(entry), tuple(tensor.shape), next(i for i, t in enumerate(tensors(entry.result)) if t is tensor))
