"""Writes that the rounds of a loop make in place, `out[:, t] = y` and `total += row`, as new tensors in the graph.

The loop of the graph carries tensors from round to round and changes none of them. So a write makes a copy that has the
new values, and from then on the copy is taken wherever the model uses the tensor that it wrote to:

    out = torch.zeros(3, n)
    for t in range(n):
        out[:, t] = f(x[:, t])       out' = written(out, (:, t), f(x[:, t])); in the next round out is out'
    return out                       the last state that the loop carried

A write is taken over only into a tensor that this forward made, and that shows no part of another one: what is written
to a view (`row = out[i]; row[0] = 1`) has to arrive in what it shows. `out[i] += y` is such a view that is then put
back; where it is not, the loop is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from onnxpatch.control_flow.loops.written_places import takes, written

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture

LeafT = TypeVar("LeafT")
_T = torch.Tensor
_PARTS = frozenset({"__getitem__", "select"})  # under dynamo they gather, where eager shows a part of the tensor

PLAIN: dict[Callable[..., object], Callable[..., torch.Tensor]] = {
    _T.add_: torch.add, _T.sub_: torch.sub, _T.mul_: torch.mul, _T.div_: torch.div,
}  # fmt: skip
"""What `x += y` and its like compute; a mode is given `x.add_(y)` for `x += y`."""


class Writes:
    """The tensors of one path that rounds of its loops wrote to, with what stands for each of them now."""

    def __init__(self) -> None:
        self._now: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # both kept alive: an id must not be used twice
        self._parts: dict[int, torch.Tensor] = {}  # parts of a tensor that were changed, and not put back yet

    def __bool__(self) -> bool:
        return bool(self._now)

    def __call__(self, leaf: LeafT) -> LeafT:
        """The tensor that has what was written to `leaf`; `leaf` itself where nothing was."""
        found = self._now.get(id(leaf))
        return leaf if found is None else found[1]  # type: ignore[return-value]

    @property
    def unfinished(self) -> bool:
        """Whether a part of a tensor was changed, and not put back into it."""
        return bool(self._parts)

    def into(self, target: torch.Tensor, new: torch.Tensor) -> None:
        """From now on, `new` stands for `target`."""
        self._now[id(target)] = target, new

    def change_part(self, part: torch.Tensor) -> None:
        """A part of a tensor was changed: it has to be put back in the same round."""
        self._parts[id(part)] = part

    def put_back(self, value: object) -> None:
        """A value is written into a tensor."""
        self._parts.pop(id(value), None)


def write(capture: Capture, target: torch.Tensor, index: object, value: object) -> bool:
    """`target[index] = value` in a round of a loop. False where it has to be written in place, as eager does."""
    path = capture.explorers[-1]
    if path.loops.running is None or not _made_here(capture, target) or _part_of_another(capture, target):
        return False
    if not takes(target, index, value):
        return False
    new = capture.execute(written, (target, index, value))
    path.loops.writes.into(target, new)
    path.loops.writes.put_back(value)
    return True


def update(capture: Capture, function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """`target += other` and its like, in a round of a loop or elsewhere."""
    path, target = capture.explorers[-1], args[0]
    assert isinstance(target, torch.Tensor)
    if path.loops.running is None or not _made_here(capture, target):
        return capture.execute(function, args, kwargs)
    if _part_of_another(capture, target):
        path.loops.writes.change_part(target)
    path.loops.writes.into(target, capture.execute(_updated, (PLAIN[function], *args), kwargs))
    return target


def _updated(
    plain: Callable[..., torch.Tensor], target: torch.Tensor, *others: object, **kwargs: object
) -> torch.Tensor:
    # In place the dtype stays, also where the other one is wider.
    return plain(target, *others, **kwargs).to(target.dtype).expand(target.shape)


def _made_here(capture: Capture, tensor: torch.Tensor) -> bool:
    """Whether this forward made a tensor: what is written to an input or a buffer is seen outside."""
    return any(tensor is made for call in capture.explorers[-1].recorder.calls for made in _results(call.result))


def _part_of_another(capture: Capture, tensor: torch.Tensor) -> bool:
    """Whether a tensor shows another one, or does so in eager."""
    calls = capture.explorers[-1].recorder.calls
    return tensor._is_view() or any(call.name in _PARTS and call.result is tensor for call in calls)


def _results(result: object) -> Sequence[object]:
    return result if isinstance(result, tuple | list) else (result,)
