"""Flattens the root's merged output into the tensors of the graph: each optional one a value and a flag, side by side.

    {"y": a, "mask": (m or None)}    tensors  a, m (or its sentinel), flag
                                     layout   {"kind": "dict", "items": {"y": {"kind": "tensor"}, ...}}

Exporters return flat tensors. The layout is written into the file, from which the original structure can be rebuilt.
Which of two such values it is, is chosen at run time: by `Where`, by logic for bools and flags, or by an ONNX `If` of
two functions, where the work of its branches is worth it:

    select(p, a, b)    value: Where(p, a.value, b.value)     flag ("is it there"): p & a.flag | ~p & b.flag
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast

import torch

from onnxpatch._torch.cond import compiled_function
from onnxpatch._torch.function_modes import unseen
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.merging.output_template import Slot, Template, folded
from onnxpatch.control_flow.optional_outputs import BranchReport
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.tree import Tree

Flag: TypeAlias = torch.Tensor | bool | None
"""Whether an optional value is there: known now, or a 0-d bool tensor; None for values that always are."""

# Calls with an inner product in every element of the result; every other call costs one operation per element.
_INNER_PRODUCTS = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "scaled_dot_product_attention"}
    | {"__matmul__", "__rmatmul__", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "tensordot"}
    | {"multi_head_attention_forward", "lstm", "gru", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}
)
_FREE = ("__get__", "size", "dim")  # `x.shape` and its like compute nothing
Operand: TypeAlias = torch.Tensor | torch.SymInt
Side = Callable[..., tuple[torch.Tensor, ...]]
_numbers = itertools.count()


Value: TypeAlias = torch.Tensor | None
Merged: TypeAlias = tuple[Value, Flag]
"""What a slot of the output has at some node of the tree of paths: a value, None for none, and its flag."""


def select(predicate: torch.Tensor, a: Merged, b: Merged, slot: Slot, fill: float = 0) -> Merged:
    """`a` where the predicate (0-d, bool) is true, else `b`; elements of `fill` where a value is absent."""
    return _value(predicate, a[0], b[0], slot, fill), _flag(predicate, a[1], b[1])


def _value(predicate: torch.Tensor, a: Value, b: Value, slot: Slot, fill: float) -> Value:
    # Both paths may have a tensor that was computed before they parted.
    if a is b:
        return a
    if slot.dtype is torch.bool:  # onnxruntime has no Where for bool
        sides = [value & p for value, p in ((a, predicate), (b, ~predicate)) if value is not None]
        return sides[0] if len(sides) == 1 else sides[0] | sides[1]
    sentinel = torch.full((), fill, dtype=slot.dtype)
    return torch.where(predicate, sentinel if a is None else a, sentinel if b is None else b)


def _flag(predicate: torch.Tensor, a: Flag, b: Flag) -> Flag:
    if a is b:
        return a
    # Flags known now cost no operation, or one.
    if isinstance(a, bool) and isinstance(b, bool):
        return predicate if a else ~predicate
    if isinstance(a, bool):
        other = cast(torch.Tensor, b)
        return predicate | other if a else ~predicate & other
    first = cast(torch.Tensor, a)
    if isinstance(b, bool):
        return ~predicate | first if b else predicate & first
    return (predicate & first) | (~predicate & cast(torch.Tensor, b))


def conditional(
    predicate: torch.Tensor, then: Side, otherwise: Side, operands: list[Operand], alive: list[object]
) -> list[torch.Tensor]:
    """The results of `then(*operands)` or `otherwise(*operands)`, as one If in the graph that is being captured.

    predicate: 0-d bool tensor. Both sides return equally many tensors, none of them an operand. alive: gets the
    compiled function under trace, which must live until the export is over.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        names = [f"x{number}" for number in range(len(operands))]
        arguments = ", ".join(names)
        lines = ["if bool(p):", f"    r = then({arguments})", "else:", f"    r = otherwise({arguments})", "return r"]
        example = [operand for operand in operands if isinstance(operand, torch.Tensor)]  # sizes are tensors here too
        functions = {"then": (then, example), "otherwise": (otherwise, example)}
        function = compiled_function(f"onnxpatch_if_{next(_numbers)}", ["p", *names], lines, functions)
        alive.append(function)
        results = function(predicate, *operands)
    else:
        results = torch.ops.higher_order.cond(predicate, then, otherwise, tuple(operands))
    return [results] if isinstance(results, torch.Tensor) else list(results)


def multiply_adds(calls: Iterable[TorchCall]) -> int:
    """The work of calls at the example's sizes."""
    return sum(_of_call(call) for call in calls)


def _of_call(call: TorchCall) -> int:
    results = tensors(call.result)
    if not results or call.constant or call.name in _FREE:
        return 0
    elements = max(map(_elements, results))
    if call.name not in _INNER_PRODUCTS:
        return elements
    operands = [tensor for tensor in tensors((call.args, call.kwargs)) if tensor.dim()]
    # A weight [out, in, ...] has in * ... factors for each element of the result.
    inner = max((_elements(tensor) // max(1, _size(tensor.shape[0])) for tensor in operands), default=1)
    return elements * max(1, inner)


def _elements(tensor: torch.Tensor) -> int:
    return math.prod(map(_size, tensor.shape))


def _size(size: int | torch.SymInt | torch.Tensor) -> int:
    """A size at the example; 8 where it depends on data. While tracing, sizes are tensors."""
    if isinstance(size, torch.SymInt):
        # 8 is arbitrary: the estimate only chooses between two forms that are both right.
        hint = size.node.hint
        return 8 if hint is None else int(hint)
    with unseen():  # int() of a tensor would be taken for a conversion of the user's
        return int(size)


def flattened(capture: Capture, template: Template, merged: list[Merged]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The tensors of the merged output, in order; one alone is not in a tuple. The report gets layout and outputs."""
    report = capture.report
    report.layout, report.outputs = None, []
    values = {id(slot): one for slot, one in zip(template.slots, merged, strict=True)}
    flat: list[torch.Tensor] = []
    report.layout = folded(
        template.structure,
        lambda slot: _leaf(capture, slot, values[id(slot)], flat),
        output_structure.constant_node,
        output_structure.container,
    )
    return flat[0] if len(flat) == 1 else tuple(flat)


def _leaf(capture: Capture, slot: Slot, merged: Merged, flat: list[torch.Tensor]) -> Tree:
    """The node of the tree for a slot, whose tensors are appended to `flat`."""
    mark, (value, flag) = capture.outputs.mark(slot.present), merged
    ignored = mark is not None and mark.flag == "ignored"
    capture.report.outputs.append((slot.where, slot.optional, slot.dtype, not ignored))
    if slot.mixed:
        capture.report.notes.append(f"output{slot.where}: the branches return several dtypes, the graph {slot.dtype}")
    assert value is not None  # at the root a sentinel has replaced what is absent
    flat.append(value)
    tree: Tree = {"kind": "tensor", "hint": output_structure.name_hint(slot.labels)}
    if not slot.optional:
        return tree
    flag = flag if isinstance(flag, torch.Tensor) else torch.full((), bool(flag))
    flat.append(~flag if ignored else flag)
    if mark is not None and mark.form == "onnx":
        tree["form"] = "onnx"
    return {**tree, "present": not ignored}


def flattened_without_branches(capture: Capture, value: object) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The same for an output that does not depend on any branch."""
    template = Template([value], of_root=True)
    values = tensors([slot.values[0] for slot in template.slots])  # with one path, every slot has a tensor
    return flattened(capture, template, [(value, None) for value in values])


def always_missing(capture: Capture) -> tuple[torch.Tensor, torch.Tensor]:
    """The sentinel and the flag of a declared output that is None on every path."""
    assert capture.outputs.missing is not None
    mark, like = capture.outputs.missing
    if like is None:
        raise capture.refusal(
            None,
            "every path returns None: nothing says what shape the missing output has in the graph",
            remedy="name an argument of the same shape: @optional_output(like='...')",
        )
    present = mark.flag == "present"
    capture.report.outputs = [((), True, like.dtype, present)]
    capture.report.layout = {"kind": "tensor", "hint": "output", "form": mark.form, "present": present}
    return torch.full_like(like, mark.fill), torch.full((), not present)


def name_outputs(file: str | os.PathLike[str], report: BranchReport, names: Sequence[str] | None = None) -> None:
    """Name a file's outputs, optional ones followed by their flag, and write the structure into its metadata.

    report: `control_flow.report_of(model)` after the export; without a structure the file is left as it is.
    names: the user's names, one for each output value, or one for each value and flag; shorter lists are allowed.
    Raises ValueError where the graph and the structure have different numbers of outputs.
    """
    if report.layout is not None:
        with edited(file) as proto:
            # `write` puts names into the tree that it is given; the report's must stay as it is for another export.
            output_structure.write_structure(proto, copy.deepcopy(report.layout), names or ())
