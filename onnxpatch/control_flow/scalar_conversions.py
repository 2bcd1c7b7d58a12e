"""Answers the torch calls that hand a number to Python, while a model is exported with its branches.

In eager, `bool(t)`, `t.item()` and `float(t)` make Python numbers, which a graph cannot follow. Here each of them has a
substitute. Bools become decisions, numbers stay tensors, and what can only be a Python number is refused:

    if t.equal(u):         Tensor.equal         a decision: the forward runs once for each answer
    n = t.item()           Tensor.item          the 0-d tensor, or a SymInt under dynamo
    self.layers[int(t)]    Tensor.__index__     a decision for each entry of the list
    for row in x:          Tensor.unbind        all rows if their number is static, else a loop (`loops/rows.py`)
    for t in x.unbind(1):  Tensor.unbind        the same, of another axis
    rows = x.unbind(1)     Tensor.unbind        `pytrees.Unbound`, where their number is dynamic
    math.sqrt(t)           Tensor.__float__     refused, unless the value is the same for all inputs

`CONDITIONS` and `NUMBERS` map each torch function to its substitute, which is called with the capture, the function
itself and the arguments of the call. Numbers that are the same for all inputs have been answered before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

import torch

from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch.control_flow.capture import (
    Capture,
    as_number,
    decide_bool,
    decide_entry,
    decide_tensor,
    needs_static,
    static_dim,
    static_size,
)
from onnxpatch.control_flow.indexing import indexed
from onnxpatch.control_flow.loops.rows import Rows, unbound
from onnxpatch.control_flow.pytrees import has_graph_number, stacked_numbers
from onnxpatch.decisions.ask import here
from onnxpatch.decisions.functions_run import in_message_text, iterated, subscripting, unpacking
from onnxpatch.messages.user_code import asking_frame, package_of

Function: TypeAlias = Callable[..., object]
_T = torch.Tensor


def _equal(capture: Capture, function: Function, a: torch.Tensor, b: torch.Tensor) -> bool:
    # torch.equal is False for different shapes; `==` below would broadcast, or fail.
    if a.dim() != b.dim() or any(_differ(*sizes) for sizes in zip(a.shape, b.shape, strict=True)):
        return False
    return decide_bool(capture, torch.all(a == b))


def _differ(size: object, other: object) -> bool:
    """Whether two sizes are known to be different."""
    return static_size(size) is not None and static_size(other) not in (None, static_size(size))


def _allclose(
    capture: Capture,
    function: Function,
    a: torch.Tensor,
    b: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    return decide_bool(capture, torch.all(torch.isclose(a, b, rtol, atol, equal_nan)))


def _contains(capture: Capture, function: Function, tensor: torch.Tensor, element: object) -> bool:
    return decide_bool(capture, torch.any(cast(torch.Tensor, tensor == element)))


# ---- numbers


def _item(capture: Capture, function: Function, tensor: torch.Tensor) -> object:
    return as_number(capture, tensor)


def _index(capture: Capture, function: Function, tensor: torch.Tensor) -> int:
    if in_message_text():
        # `f"wrong shape {x.shape}"` asks for each size, whatever becomes of the text.
        with capture.pause(), tracing_paused():
            return int(tensor)
    # Only a subscript can be forked, one path for each entry; `range(t)` or a size needs the number itself.
    if subscripting():
        return decide_entry(capture, tensor)
    raise needs_static(capture, "a tensor used as a Python index, size or range")


def _float(capture: Capture, function: Function, tensor: torch.Tensor) -> float:
    raise capture.refusal(
        here(),
        "a tensor is turned into a Python float",
        remedy="keep it a tensor: torch.sqrt, not math.sqrt; torch.full or a 0-d tensor, not float()",
    )


def _len(capture: Capture, function: Function, tensor: torch.Tensor) -> int:
    size = static_dim(capture, tensor, 0)
    if size is None:
        raise needs_static(capture, "len() of a tensor")
    return size


# ---- rows


def _tolist(capture: Capture, function: Function, tensor: torch.Tensor) -> object:
    if tensor.dim() == 0:
        return as_number(capture, tensor)
    if _rows_are_static(capture, tensor):
        return [_tolist(capture, function, row) for row in _all_rows(capture, tensor)]
    raise capture.refusal(
        here(),
        # A Python list has a fixed length, and the code after it may ask for it.
        "tolist() of a tensor whose number of rows depends on the input",
        remedy="write it for the whole tensor, or put the body into a function marked @onnxpatch.scan (rows that "
        "depend on the ones before) or @onnxpatch.each (rows that do not)",
    )


def _unbind(capture: Capture, function: Function, tensor: torch.Tensor, dim: int = 0) -> object:
    if not _called_by_iter():
        if unpacking() or static_dim(capture, tensor, dim) is not None:
            return capture.execute(function, (tensor, dim))
        whole = capture.execute(torch.movedim, (tensor, dim, 0))
        return Rows(capture, whole) if iterated() else unbound(capture, whole)
    return _all_rows(capture, tensor) if _rows_are_static(capture, tensor) else Rows(capture, tensor)


def _called_by_iter() -> bool:
    """Whether `unbind` was called by `Tensor.__iter__`."""
    # `__iter__` of torch.Tensor is torch's code; a forward may be called `__iter__` too.
    caller = asking_frame(sys._getframe(1))
    return caller is not None and caller.f_code.co_name == "__iter__" and package_of(caller) == "torch"


def _rows_are_static(capture: Capture, tensor: torch.Tensor) -> bool:
    """Whether the number of rows is the same for all inputs; the user's `q, k, v = qkv` says so too."""
    return static_dim(capture, tensor, 0) is not None or unpacking()


def _all_rows(capture: Capture, tensor: torch.Tensor) -> list[torch.Tensor]:
    rows: Iterable[torch.Tensor] = capture.execute(_T.unbind, (tensor, 0))
    return list(rows)


# ---- text, NumPy, constructors


def _repr(capture: Capture, function: Function, tensor: torch.Tensor, **options: object) -> object:
    capture.check_counter(tensor, "text")
    # Printing makes torch calls of its own, which are no part of the model.
    with capture.pause():
        return function(tensor, **options)


def _format(capture: Capture, function: Function, tensor: torch.Tensor, spec: str) -> str:
    capture.check_counter(tensor, "text")
    # Not the value, which would be the example's. Under trace, the sizes are tensors as well.
    return f"<tensor of shape {tuple(tensor.shape)}>" if capture.exporter == "dynamo" else "<tensor>"


def _to_numpy(capture: Capture, function: Function, tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
    raise capture.refusal(
        here(), "a tensor is handed to NumPy: what NumPy computes is not in the graph", remedy="compute it with torch"
    )


def _tensor(capture: Capture, function: Function, data: object, *args: object, **kwargs: object) -> object:
    """torch.tensor of a nest of lists with tensors in it: a stack."""
    if isinstance(data, list | tuple) and has_graph_number(data):
        dtype = kwargs.get("dtype", args[0] if args else None)
        return stacked_numbers(data, dtype if isinstance(dtype, torch.dtype) else None)
    return capture.execute(function, (data, *args), kwargs)


# A mode is given the function that was called: `t.equal(u)` and `torch.equal(t, u)` are two keys.
CONDITIONS: dict[Function, Function] = {
    _T.__bool__: decide_tensor,
    _T.is_nonzero: decide_tensor,
    torch.is_nonzero: decide_tensor,
    _T.equal: _equal,
    torch.equal: _equal,
    _T.allclose: _allclose,
    torch.allclose: _allclose,
    _T.__contains__: _contains,
}
NUMBERS: dict[Function, Function] = {
    _T.item: _item,
    _T.tolist: _tolist,
    _T.unbind: _unbind,
    torch.unbind: _unbind,
    _T.__len__: _len,
    _T.__int__: _index,
    _T.__index__: _index,
    _T.__float__: _float,
    _T.__format__: _format,
    _T.__repr__: _repr,
    _T.numpy: _to_numpy,
    _T.__array__: _to_numpy,
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    _T.__getitem__: indexed,
    _T.__setitem__: indexed,
}
