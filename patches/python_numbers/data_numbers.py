"""Numbers read from tensors: int(), max(), math.ceil(), .item(), .tolist() and .numpy() stay in the graph, and so do
comparisons with them.

The values of buffers and parameters, such as a schedule or a flag that Python branches on, are known at export.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import exporting, op, running_model
from onnxpatch.decisions.ask import deciding_frame, forking
from onnxpatch.formulas.symbolic import (
    assume,
    constant,
    is_row,
    remember,
    same_row,
    static_number,
    traced_from,
    traced_from_sizes,
    traced_value,
    unrecorded,
)

REFUSED = "Could not extract specialized integer from data-dependent expression u0"
_LONGEST = 256  # numbers, for each of which a graph has a node or two
LINK = "https://github.com/pytorch/pytorch/issues/143222"


def _longest(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """As many tokens as the longest sequence has, and the mask of those that each has."""
    longest = int(max(lengths))
    places = torch.arange(longest)
    return x[:, :longest].cumsum(1), places[None] < lengths[:, None]


def _sequences() -> list[tuple[Tensor, Tensor]]:
    # The longest of the lengths is to decide: only once is it the size of the input, too.
    given = ((7, (3, 5)), (6, (6, 2, 1)), (4, (1,)), (15, (12, 14)))
    return [(torch.randn(len(lengths), size, 3), torch.tensor(lengths)) for size, lengths in given]


@op(
    "builtins.int",
    name="int-of-data",
    why=REFUSED,
    reason="data-dependent expression|shape",
    link=LINK,
    tries=_sequences,
    case=_longest,
    unchanged=lambda x, lengths: x * int(2.5),
    beside=("max-of-a-tensor",),
)
def int_of_data(original: Callable[..., int], *args: Any) -> object:
    """`int(tensor)` as a size that the data decides, towards zero; a constant tensor's is a number."""
    if len(args) != 1 or not _is_number(args[0]):
        return NotImplemented
    whole = args[0].to(torch.int64)
    # Only a whole number's item() may be a size under torch.export.
    return same_row(whole.reshape(()) if exporting() == "trace" else whole.item(), args[0])


def _share(x: Tensor, lengths: Tensor) -> Tensor:
    """Each value as a share of the longest sequence."""
    return x / (1 + float(max(lengths)))


@op(
    "builtins.float",
    name="float-of-data",
    why=REFUSED,
    reason="data-dependent expression|relative error",
    link=LINK,
    tries=_sequences,
    case=_share,
    unchanged=lambda x, lengths: x * float("2.5"),
    beside=("max-of-a-tensor",),
)
def float_of_data(original: Callable[..., float], *args: Any) -> object:
    """`float(tensor)` as a tensor without axes, which does not promote what it is computed with, as a number."""
    if len(args) != 1 or not _is_number(args[0]):
        return NotImplemented
    number = args[0].reshape(())
    return number if number.is_floating_point() else number.to(torch.get_default_dtype())


def _is_number(value: object) -> bool:
    if not isinstance(value, Tensor) or value.is_complex() or not _of_inputs(value):
        return False
    return all(isinstance(size, int) and size == 1 for size in value.shape)


def _of_inputs(tensor: Tensor) -> bool:
    """Whether a tensor may be computed from the inputs; under torch.export all may, also those of stored numbers."""
    if exporting() != "trace":
        return True
    running = running_model()
    if running is None or traced_value(tensor) is None:
        return False
    return not traced_from(tensor, running.tensors.values())


def _dispatched(x: Tensor, expert: Tensor) -> tuple[Tensor, ...]:
    """A mixture of experts, which takes as many rows as each was chosen for; and a mask of the longer side."""
    start, parts = 0, []
    counts = torch.stack([(expert == number).sum() for number in range(3)])
    for number, count in enumerate(counts.cpu().numpy()):
        if count == 0:
            continue
        parts.append(x[start : start + count].cumsum(0) * (number + 1))
        start += count
    rows, columns = torch.stack([torch.arange(size).max() + 1 for size in x.shape]).tolist()
    return torch.cat(parts) / counts.max().item(), torch.cat([x.new_zeros(rows), x.new_ones(columns)])


@op(
    "item",
    "tolist",
    "numpy",
    name="symbolic-items",
    why="Converting a tensor to a Python number might cause the trace to be incorrect: .item(), .tolist() and .numpy() "
    "of data or of sizes freeze them",
    reason="relative error|shape|NumPy",
    link="https://github.com/pytorch/pytorch/issues/21576",
    tries=lambda *experts: (torch.randn(len(experts), 4), torch.tensor(experts)),
    sizes=((0, 2, 1, 0), (1, 1, 0), (2, 0, 0, 1, 2, 2, 1), (0,)),
    case=_dispatched,
    unchanged=lambda x, expert: x * torch.ones(1).item(),
    beside=("data-questions",),
)
def symbolic_items(original: Callable[..., object], tensor: Tensor, *args: object, **kwargs: object) -> object:
    """Keeps numbers that are computed from the inputs as 0-d tensors, nested in lists for tolist().

    For numpy() of whole numbers it is the tensor itself, of whose elements Python asks as it does of an array's.
    """
    if exporting() == "dynamo":
        return _under_dynamo(original, tensor)
    if traced_from_sizes(tensor):
        known = not tensor.dim() and static_number(tensor) is not None
    else:
        known = tensor.is_complex() or tensor.numel() > _LONGEST or not _of_inputs(tensor)
    if known or args or kwargs:
        return NotImplemented
    if original.__name__ == "numpy":
        return NotImplemented if tensor.is_floating_point() else tensor
    # The example's numbers are read for the nesting of the lists only.
    found = _nested(tensor if original.__name__ == "tolist" else tensor.reshape(()), original(tensor))
    return remember(found, tensor) if tensor.dim() == 1 and isinstance(found, list) else found


def _under_dynamo(original: Callable[..., object], tensor: Tensor) -> object:
    """Torch itself keeps item() and tolist(), which asks each of its rows."""
    if original.__name__ == "item" and is_row(tensor):
        return same_row(original(tensor), tensor)
    counts = original.__name__ == "numpy" and tensor.dim() == 1 and not tensor.is_floating_point()
    return tensor.tolist() if counts else NotImplemented


def _nested(tensor: Tensor, numbers: object) -> Any:
    if not isinstance(numbers, list):
        return tensor
    return [_nested(tensor[index], inner) for index, inner in enumerate(numbers)]


def _extremes(x: Tensor, lengths: Tensor) -> Tensor:
    """As many tokens as the longest sequence has, less the shortest one's, and at most four of them."""
    return x[:, : max(lengths)].cumsum(1) - min(lengths) + x[:, : min(lengths[0], 4)].sum(1, keepdim=True)


@op(
    "builtins.max",
    "builtins.min",
    name="max-of-a-tensor",
    why="max(lengths) compares row by row in Python: the example's longest stays, and as many rows as it has",
    reason="missing 1 required|Split",
    link=LINK,
    tries=_sequences,
    case=_extremes,
    unchanged=lambda x, lengths: x * max(2.5, 1),
)
def max_of_a_tensor(original: Callable[..., object], *args: object, **kwargs: object) -> object:
    """`max(lengths)` of a tensor with one axis: its largest element, without axes, as Python gives it; `max(n, 4)`."""
    if len(args) > 1 and not kwargs and any(isinstance(one, Tensor) and _is_number(one) for one in args):
        if not all(isinstance(one, Tensor | int | float) for one in args):
            return NotImplemented
        extreme = torch.maximum if original.__name__ == "max" else torch.minimum
        return functools.reduce(extreme, map(torch.as_tensor, args))
    if len(args) != 1 or kwargs or not isinstance(args[0], Tensor) or args[0].dim() != 1:
        return NotImplemented
    # amax: `max(0)` would give the index as well.
    return args[0].amax(0) if original.__name__ == "max" else args[0].amin(0)


def _streamed(x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """A cache of which as many steps count as were seen, and one row for each four of these."""
    seen: Any = past.sum().item()
    return x[6 - min(6, seen) :].cumsum(0), x[: math.ceil(seen / 4)].cumsum(0) + round(seen / 8)


@op(
    "math.ceil",
    "math.floor",
    "math.trunc",
    "builtins.round",
    name="rounded-data",
    why="math.ceil(seen / 4), where `seen` is read from a tensor, is the example's: no rounding of Python's is kept",
    reason="relative error|shape|round",
    link=LINK,
    exporters=("trace",),
    tries=lambda *past: (torch.randn(6, 3), torch.tensor(past)),
    sizes=((3, 2), (1, 0), (4, 8), (9, 9)),
    case=_streamed,
    unchanged=lambda x, past: x * math.ceil(2.5) + past.sum(),
    beside=("symbolic-items", "max-of-a-tensor"),
)
def rounded_data(original: Callable[..., object], value: object, *digits: object) -> object:
    """Rounds the 0-d tensor, halves to the even number, as Python does."""
    if digits or not isinstance(value, Tensor) or not _is_number(value):
        return NotImplemented
    return getattr(torch, original.__name__)(value.reshape(())).to(torch.int64)


def _summed(x: Tensor, counts: Tensor) -> Tensor:
    """The mean, and the sum of as many rows as are counted, if there are any."""
    count: Any = counts.abs().sum().item()
    total = x.mean(0)
    if count > 0:
        total = total + x[:count].sum(0)
    return total


@op(
    "SymBool.__bool__",
    name="data-questions",
    exporters=("dynamo",),
    why="Could not guard on data-dependent expression u0 > 0, Eq(u0, 1): an if on a number that data decides, the "
    "model's or torch's own",
    reason="data-dependent expression",
    link="https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/export/programming_model.html",
    tries=lambda batch, most: (torch.randn(batch, most), torch.arange(batch) - 1),
    sizes=((4, 3), (5, 2), (2, 7), (1, 4)),
    case=_summed,
)
def data_question(original: Callable[[Any], bool], value: object) -> bool:
    """Answers as for a number of some size: not 0, not 1, equal to no other one, inside of what it indexes."""
    # 1: past the stand-in that calls this. torch's own questions are no branches of the model.
    if not isinstance(value, torch.SymBool) or (forking() and deciding_frame(1) is not None):
        return NotImplemented
    answer = assume(value)
    return NotImplemented if answer is None else answer


class _Scheduled(torch.nn.Module):
    """Blocks with a buffer that switches them on, and says how often their result is added."""

    def __init__(self) -> None:
        super().__init__()
        self.active = torch.nn.Buffer(torch.tensor([0.0, 0.7]))
        self.times = torch.nn.Buffer(torch.tensor([3, 2]))

    def forward(self, x: Tensor) -> Tensor:
        for block in range(2):
            if self.active[block] > 0.5:
                times: Any = self.times[block].item()
                x = torch.cat([x] * times) + int(self.times.sum())
        return x


@op(
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "item",
    "tolist",
    name="stored-numbers",
    why="Could not guard on data-dependent expression Eq(u0, 1): an if on a buffer or parameter",
    reason="data-dependent expression",
    link="https://github.com/pytorch/pytorch/issues/157355",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n, 3),
    sizes=(4, 2, 7),
    case=_Scheduled,
)
def stored_numbers(original: Callable[..., Tensor], tensor: Tensor) -> object:
    """Gives the Python number of a tensor that is computed from parameters and buffers only: these are constants."""
    running = running_model()
    # Without a model no tensor is known to be stored.
    if running is None or running.model is None:
        return NotImplemented
    known = constant(tensor, running.model, running.tensors)
    return NotImplemented if known is None else unrecorded(lambda: original(known))
