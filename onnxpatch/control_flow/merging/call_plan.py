"""Finds the torch calls that each part of a tree of paths needs, so that an `If` can repeat just these in its branches.

The tree is walked from the ends backwards. At an end, the returned values are needed; each call before it is kept if
something needed depends on it, and what the call reads is needed in turn. What no kept call provides is free: it must
come in from outside.

    if p:                kept below True:  [mul]     free: {x, w}     the If takes x and w as operands,
        y = x * w        kept below False: [neg]     free: {x}        and repeats mul or neg inside
    else:
        y = -x

Whether an `If` is needed: where the tensors of the paths may differ in shape at some size, `Where` would broadcast or
fail. Under dynamo the symbolic sizes are compared. Under trace they are those of the shadows; where a tensor has none,
its shape is followed back through elementwise calls to the tensor that had it first:

    torch.relu(x) * 2     x      the same shape as x
    F.linear(x, w)        ("linear", x, 10)
"""

from __future__ import annotations

import torch

from onnxpatch._torch.cond import free_symbols
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.output_template import ABSENT, Slot
from onnxpatch.control_flow.path_tree import FinishedPath, PathNode
from onnxpatch.control_flow.pytrees import Name, names_in, tensors
from onnxpatch.control_flow.recording import latest
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import TorchCall, names_made, pruned

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


class CallPlan:
    """For each node of a tree, by its id: `kept`, the calls between its decision and the one before; `free`, what they
    and the nodes below take from outside. known: every tensor of the tree by its id.

    reuse: whether paths share the calls before their common decisions.
    """

    def __init__(self, capture: Capture, root: PathNode, slots: list[Slot], reuse: bool) -> None:
        self._capture, self._root, self._slots, self._reuse = capture, root, slots, reuse
        self.position = {id(path): number for number, path in enumerate(root.finished())}
        self.kept: dict[int, list[TorchCall]] = {}
        self.free: dict[int, set[Name]] = {}
        self.known = self._all_tensors()

    def _all_tensors(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for path in self._root.finished():
            for call in path.calls:
                found.update((id(t), t) for t in tensors((call.args, call.kwargs, call.result)))
        found.update((id(t), t) for slot in self._slots for t in tensors(slot.present))
        predicates = (node.predicate for node in self._root.nodes())
        found.update((id(predicate), predicate) for predicate in predicates if predicate is not None)
        return found

    def fill(self) -> None:
        """Plan the whole tree."""
        self._plan(self._root, 0, 0)

    def _plan(self, node: PathNode, start: int, depth: int) -> set[Name]:
        """Plan a node, whose calls begin at `start` of its paths; returns what it takes from outside."""
        path = node.first()
        if node.end is not None:
            stop = len(path.calls)
            needed = self._needed_at_end(path)
        else:
            stop = path.decided_at[depth]
            # A decision with one side left is not written, and nobody needs its predicate.
            needed = names_in([node.predicate] if has_two_sides(node) else [])
            for child in node.children.values():
                needed |= self._plan(child, stop if self._reuse else 0, depth + 1)
        # Without shared calls each path ran in full on tensors of its own: all its calls belong to its end.
        calls = path.calls[start:stop] if self._reuse or node.end is not None else []
        self.kept[id(node)] = pruned(calls, needed)
        self.free[id(node)] = needed - names_made(self.kept[id(node)])
        return set(self.free[id(node)])

    def _needed_at_end(self, path: FinishedPath) -> set[Name]:
        number = self.position.get(id(path))
        if number is None:  # the path raised
            return set()
        return names_in([slot.values[number] for slot in self._slots]) | self._sentinel_names(number)

    def _sentinel_names(self, number: int) -> set[Name]:
        """What the sentinels of a path's absent values need: sizes, or while tracing the value itself."""
        absent = [slot for slot in self._slots if slot.values[number] is ABSENT]
        shapes = [self._capture.outputs.sentinel(slot.present)[0] for slot in absent]
        needed = names_in(shapes)
        if self._capture.exporter == "trace":
            for slot, like in zip(absent, shapes, strict=True):
                if like is None:
                    calls, names = self.making(slot)
                    needed |= names - names_made(calls)
            return needed
        likes = [value for slot in absent for value in slot.present[:1] if isinstance(value, torch.Tensor)]
        sizes = [size for like in likes for size in like.shape if isinstance(size, torch.SymInt)]
        return needed | {symbol for size in sizes for symbol in free_symbols(size) if has_hint(size)}

    def making(self, slot: Slot) -> tuple[list[TorchCall], set[Name]]:
        """The calls that make a slot's value on the first path that has one, and what they need."""
        number, value = next((n, v) for n, v in enumerate(slot.values) if v is not ABSENT)
        path = next(path for path in self._root.finished() if self.position[id(path)] == number)
        needed = names_in([value])
        return pruned(path.calls, needed), needed


def has_two_sides(node: PathNode) -> bool:
    """Whether paths return on both sides of a decision; where one side only raises, there is nothing to choose."""
    return len(node.children) == 2 and all(child.returns for child in node.children.values())


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
        return {_format_shape(value) for value in values}
    if any(map(shadow.unknown, values)):
        made_by: dict[int, TorchCall] = {}
        for path in root.finished():
            made_by.update((id(t), call) for call in path.calls for t in tensors(call.result))
        return {_shape_source(value, made_by) for value in values}
    shadows = ((value, shadow.get(value)) for value in values)
    return {_format_shape(known if isinstance(known, torch.Tensor) else value) for value, known in shadows}


def varying_dim(slot: Slot) -> int | None:
    """The one dimension, other than the first, in which the paths' symbolic sizes differ or depend on data."""
    shapes = [value.shape for value in slot.present if isinstance(value, torch.Tensor)]
    formatted = [_format_shape(value) for value in slot.present if isinstance(value, torch.Tensor)]
    if not shapes or _shadow() is not None:
        return None
    varying = [
        dim
        for dim in range(len(shapes[0]))
        if len({sizes[dim] for sizes in formatted}) > 1 or not all(has_hint(shape[dim]) for shape in shapes)
    ]
    # As the first dimension it need not be moved.
    return varying[0] if len(varying) == 1 and varying[0] else None


def _shadow() -> SymbolicShadow | None:
    capture = latest()
    return None if capture is None else capture.shadow


def _format_shape(tensor: torch.Tensor) -> tuple[str, ...]:
    """The sizes of a tensor as text, symbolic ones as expressions."""
    return tuple(str(size.node.expr) if isinstance(size, torch.SymInt) else str(size) for size in tensor.shape)


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
