"""Whether the tensors of several paths have the same shape at every size. Where they may not, `Where` would
broadcast or fail, and an `If` is needed.

Under dynamo the symbolic sizes are compared. Under trace they are those of the shadows; where a tensor has none,
its shape is followed back through elementwise calls to the tensor that had it first:

    torch.relu(x) * 2     x      the same shape as x
    F.linear(x, w)        ("linear", x, 10)
"""

from __future__ import annotations

import torch

from onnxpatch.control_flow.merging.output_template import Slot
from onnxpatch.control_flow.path_tree import PathNode
from onnxpatch.control_flow.pytrees import format_shape, tensors
from onnxpatch.control_flow.recording import latest
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import TorchCall

# Calls whose result has the shape of their largest tensor argument.
# By name, since torch.relu, F.relu and Tensor.relu are three functions.
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


def has_hint(size: int | torch.SymInt) -> bool:
    """Whether a size is known at the example; one that depends on data is not."""
    return not isinstance(size, torch.SymInt) or bool(size.node.has_hint())


def same_shape(values: list[object], root: PathNode) -> bool:
    """Whether all values of one slot have the same sizes, whatever the sizes of the inputs are. Numbers are 0-d."""
    found = [value for value in values if isinstance(value, torch.Tensor)]
    if len(found) < len(values):
        return all(value.dim() == 0 for value in found)
    # The others are 0-d too: `output_template` refuses different numbers of dimensions.
    return all(value is found[0] for value in found) or found[0].dim() == 0 or len(_shapes(found, root)) == 1


def _shapes(values: list[torch.Tensor], root: PathNode) -> set[tuple[object, ...]]:
    """What the shapes of the tensors are known by: the same for all sizes of the inputs, or not."""
    shadow = _shadow()
    if shadow is None:
        return {format_shape(value) for value in values}
    if any(map(shadow.unknown, values)):
        made_by: dict[int, TorchCall] = {}
        for path in root.finished():
            made_by.update((id(t), call) for call in path.calls for t in tensors(call.result))
        return {_shape_source(value, made_by) for value in values}
    shadows = ((value, shadow.get(value)) for value in values)
    return {format_shape(known if isinstance(known, torch.Tensor) else value) for value, known in shadows}


def varying_dims(slot: Slot) -> list[int]:
    """The dimensions in which the paths' symbolic sizes differ or depend on data; none if that is the first alone."""
    values = [value for value in slot.present if isinstance(value, torch.Tensor)]
    if not values or _shadow() is not None:
        return []
    shapes, formatted = [value.shape for value in values], [format_shape(value) for value in values]
    varying = [
        dim
        for dim in range(len(shapes[0]))
        if len({sizes[dim] for sizes in formatted}) > 1 or not all(has_hint(shape[dim]) for shape in shapes)
    ]
    # As the first dimension it need not be moved.
    return [] if varying == [0] else varying


def _shadow() -> SymbolicShadow | None:
    capture = latest()
    return None if capture is None else capture.shadow


def _shape_source(tensor: torch.Tensor, made_by: dict[int, TorchCall]) -> tuple[object, ...]:
    """Equal for tensors that must have equal shapes: the tensor that had the shape first, and what changed it since."""
    call = made_by.get(id(tensor))
    if call is None:
        return (id(tensor),)
    same = [t for t in tensors((call.args, call.kwargs)) if t.shape == tensor.shape]
    if call.name in _ELEMENTWISE and same:
        return _shape_source(same[0], made_by)
    if call.name == "linear" and isinstance(call.args[0], torch.Tensor):
        return ("linear", _shape_source(call.args[0], made_by), int(tensor.shape[-1]))
    return (id(call), tuple(tensor.shape), next(i for i, t in enumerate(tensors(call.result)) if t is tensor))
