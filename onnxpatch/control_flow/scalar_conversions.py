"""Torch calls that hand a number to Python: a bool becomes a decision, a number stays a tensor, the rest is refused."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.loops.rows import Rows
from onnxpatch.control_flow.size_decisions import static_size
from onnxpatch.control_flow.source_sites import here, instruction, subscripting
from onnxpatch.messages.user_code import is_user_frame, user_frame

T = torch.Tensor
Answer = Callable[..., Any]
ITERATING = "iterating over a tensor's rows"


def decided(capture: Capture, tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path."""
    run = capture.execute
    if tensor.dtype is not torch.bool:
        tensor = run(T.ne, (tensor, 0), {})
    if tensor.dim():
        tensor = run(T.reshape, (tensor, ()), {})
    return capture.decide(tensor)


def _bool(capture: Capture, function: Any, tensor: torch.Tensor) -> bool:
    known = static_value(capture, tensor)
    return decided(capture, tensor) if known is None else bool(known)


def _equal(capture: Capture, function: Any, a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dim() != b.dim() or any(
        static_size(s) is not None and static_size(t) not in (None, static_size(s))
        for s, t in zip(a.shape, b.shape, strict=True)
    ):
        return False
    return decided(capture, torch.all(a == b))


def _allclose(capture: Capture, function: Any, a: torch.Tensor, b: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    return decided(capture, torch.all(torch.isclose(a, b, *args, **kwargs)))


def _item(capture: Capture, function: Any, tensor: torch.Tensor) -> Any:
    return as_number(capture, tensor)


def as_number(capture: Capture, tensor: torch.Tensor) -> Any:
    """What stands for `tensor.item()`: the 0-d tensor itself, or under dynamo a SymInt for whole numbers."""
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype is not torch.bool
    if whole and capture.exporter == "dynamo":
        return capture.execute(T.item, (tensor,), {})
    return capture.execute(T.reshape, (tensor, ()), {}) if tensor.dim() else tensor


def _tolist(capture: Capture, function: Any, tensor: torch.Tensor) -> Any:
    if tensor.dim() == 0:
        return as_number(capture, tensor)
    return [_tolist(capture, function, row) for row in rows(capture, tensor, "tolist()")]


def _unbind(capture: Capture, function: Any, tensor: torch.Tensor, dim: int = 0) -> Any:
    caller = sys._getframe(2)
    iterating = caller.f_code.co_name == "__iter__" and not is_user_frame(caller)
    if iterating:
        return rows(capture, tensor, ITERATING)
    return capture.execute(function, (tensor, dim), {})


def rows(capture: Capture, tensor: torch.Tensor, what: str) -> Any:
    """The rows of a tensor: all of them where their number is fixed, stand-ins for a loop where it is not."""
    if fixed_size(capture, tensor, 0) is None and _unpacked() is None:
        if what == ITERATING:
            return Rows(capture, tensor)
        raise capture.refusal(
            here(),
            f"{what}, as many as the input has",
            remedy="write it for the whole tensor, or put the body into a function marked @onnxpatch.scan (rows that "
            "depend on the ones before) or @onnxpatch.each (rows that do not)",
        )
    return list(capture.execute(T.unbind, (tensor, 0), {}))


def _unpacked() -> int | None:
    """How many names the user's line unpacks into, if that is what it does: `q, k, v = qkv`."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return None
    code, at = frame.f_code.co_code, instruction(frame)
    return code[at + 1] if dis.opname[code[at]] == "UNPACK_SEQUENCE" else None


def _len(capture: Capture, function: Any, tensor: torch.Tensor) -> int:
    size = fixed_size(capture, tensor, 0)
    return size if size is not None else fixed(capture, tensor.shape[0], "len() of a tensor")


def _index(capture: Capture, function: Any, tensor: torch.Tensor) -> int:
    if static_value(capture, tensor) is None and subscripting():
        return capture.choose(id(tensor), lambda numbers: any_of(capture, tensor, numbers))
    return fixed(capture, tensor, "a tensor used as a Python index, size or range")


def any_of(capture: Capture, tensor: torch.Tensor, numbers: list[int]) -> bool:
    """The decision whether a whole number is one of two."""
    first, second = numbers
    return decided(capture, (tensor == first) | (tensor == second))


def _float(capture: Capture, function: Any, tensor: torch.Tensor) -> float:
    known = static_value(capture, tensor)
    if known is not None:
        return float(known)
    raise capture.refusal(
        here(),
        "a tensor turned into a Python float",
        remedy="keep it a tensor: torch.sqrt, not math.sqrt; torch.full or a 0-d tensor, not float()",
    )


def fixed(capture: Capture, size: Any, what: str) -> int:
    """A size or whole number as an int, refused where it is not the same for all inputs."""
    known = static_value(capture, size) if isinstance(size, torch.Tensor) else static_size(size)
    if known is None:
        raise capture.refusal(
            here(),
            f"{what}, whose value depends on the inputs",
            remedy="keep it a tensor (slices and sizes take 0-d tensors), or put a loop's body into a function marked "
            "@onnxpatch.scan or @onnxpatch.while_loop",
        )
    return int(known)


def static_value(capture: Capture, tensor: Any) -> Any:
    """The value of a 0-d tensor that is the same for all inputs, or None where it may depend on them."""
    if capture.exporter == "dynamo" or not isinstance(tensor, torch.Tensor):
        return static_size(tensor)
    symbolic = capture.shadow.get(tensor) if capture.shadow is not None else None
    if isinstance(symbolic, torch.SymBool):
        return constant_answer(symbolic)
    return None if symbolic is None or isinstance(symbolic, torch.Tensor) else static_size(symbolic)


def fixed_size(capture: Capture, tensor: torch.Tensor, dim: int) -> int | None:
    """A tensor's size if it is the same for all inputs."""
    if capture.shadow is None:
        return static_size(tensor.shape[dim])
    if capture.shadow.unknown(tensor):
        return None
    symbolic = capture.shadow.get(tensor)
    with tracing_paused():
        return static_size((tensor if symbolic is None else symbolic).shape[dim])


def _contains(capture: Capture, function: Any, tensor: torch.Tensor, element: Any) -> Any:
    return decided(capture, torch.any(tensor == element))


def _repr(capture: Capture, function: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    capture.check_counter(tensor, "text")
    with capture.pause():
        return function(tensor, *args, **kwargs)


def _format(capture: Capture, function: Any, tensor: torch.Tensor, spec: str) -> str:
    capture.check_counter(tensor, "text")
    return f"<tensor of shape {tuple(tensor.shape)}>" if capture.exporter == "dynamo" else "<tensor>"


def _outside(capture: Capture, function: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    raise capture.refusal(
        here(), "a tensor handed to NumPy: what is computed there is not in the graph", remedy="compute it with torch"
    )


def _built(capture: Capture, function: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.tensor of a nest of lists that holds tensors: a stack."""
    if isinstance(data, list | tuple) and holds_tensor(data):
        return stacked(capture, data, kwargs.get("dtype", args[0] if args else None))
    return capture.execute(function, (data, *args), kwargs)


def holds_tensor(data: Any) -> bool:
    """Whether a nest of lists and tuples holds a tensor or a symbolic number."""
    if isinstance(data, list | tuple):
        return any(holds_tensor(inner) for inner in data)
    return isinstance(data, torch.Tensor | torch.SymInt | torch.SymFloat)


def stacked(capture: Capture, data: Any, dtype: torch.dtype | None) -> torch.Tensor:
    """A nest of numbers and 0-d tensors as one tensor, as torch.tensor would make it from the numbers."""
    made = _stack(data)
    whole = not made.dtype.is_floating_point
    wanted = dtype or (made.dtype if whole else torch.get_default_dtype())
    return made if made.dtype == wanted else made.to(wanted)


def full(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number, symbolic ones too, as a 0-d tensor."""
    return torch.full((), value, dtype=dtype)


def _stack(data: Any) -> torch.Tensor:
    if isinstance(data, list | tuple):
        parts = [_stack(inner) for inner in data]
        wanted = parts[0].dtype
        for part in parts[1:]:
            wanted = torch.promote_types(wanted, part.dtype)
        return torch.stack([part.to(wanted) if part.dtype != wanted else part for part in parts])
    if isinstance(data, torch.Tensor):
        return data
    if isinstance(data, torch.SymInt):
        return full(data, torch.int64)
    return torch.full((), data, dtype=torch.int64 if isinstance(data, int) and not isinstance(data, bool) else None)


def _indexed(capture: Capture, function: Any, tensor: torch.Tensor, index: Any, *value: Any) -> Any:
    """Indexing: under dynamo the ends of slices must be symbolic numbers, not tensors."""
    if capture.exporter == "dynamo":
        index = tuple(_slice(capture, i) for i in index) if isinstance(index, tuple) else _slice(capture, index)
        if not value and (picked := _picked(capture, index)) is not None:
            found = capture.execute(function, (tensor, picked[0]), {})
            return capture.execute(torch.select, (found, picked[1], 0), {})
    return capture.execute(function, (tensor, index, *value), {})


def _picked(capture: Capture, index: Any) -> tuple[Any, int] | None:
    """An index by 0-d whole numbers, which torch would turn into Python's, as one by rows of one; and the axis of that.

    None for any other index.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    numbers = [at for at, part in enumerate(parts) if isinstance(part, torch.Tensor)]
    plain = all(isinstance(part, torch.Tensor | slice | int | torch.SymInt) or part is None for part in parts)
    if not numbers or not plain or not all(_is_number(parts[at]) for at in numbers):
        return None
    kept = [part for part in parts if not isinstance(part, int | torch.SymInt) or isinstance(part, bool)]
    places = [at for at, part in enumerate(kept) if isinstance(part, torch.Tensor)]
    axis = places[0] if places[-1] - places[0] == len(places) - 1 else 0
    rows = [capture.execute(T.reshape, (p, (1,)), {}) if isinstance(p, torch.Tensor) else p for p in parts]
    return tuple(rows), axis


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 0 and not tensor.is_floating_point() and tensor.dtype is not torch.bool


def _slice(capture: Capture, index: Any) -> Any:
    if not isinstance(index, slice):
        return index
    ends = [
        as_number(capture, end) if isinstance(end, torch.Tensor) else end
        for end in (index.start, index.stop, index.step)
    ]
    return slice(*ends)


ANSWERS: dict[Any, Answer] = {
    T.__bool__: _bool,
    T.is_nonzero: _bool,
    torch.is_nonzero: _bool,
    T.equal: _equal,
    torch.equal: _equal,
    T.allclose: _allclose,
    torch.allclose: _allclose,
    T.item: _item,
    T.tolist: _tolist,
    T.unbind: _unbind,
    T.__len__: _len,
    T.__int__: _index,
    T.__index__: _index,
    T.__float__: _float,
    T.__contains__: _contains,
    T.__format__: _format,
    T.__repr__: _repr,
    T.numpy: _outside,
    T.__array__: _outside,
    torch.tensor: _built,
    torch.as_tensor: _built,
    T.__getitem__: _indexed,
    T.__setitem__: _indexed,
}
