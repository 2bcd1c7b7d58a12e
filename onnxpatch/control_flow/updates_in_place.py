"""Records updates in place inside a plain loop as new tensors, so that its rounds can be compared and repeated.

    for i in range(n):
        total += x[i]          new = total.clone(); new += x[i]        from here on, `new` stands for `total`
        out[i] = total         new = out.clone(); new[i] = total       from here on, `new` stands for `out`
        out[i] += 1            the row is a view: the new row is written into a new `out`

Python keeps the old tensor under its names; every later torch call gets what stands for it. A tensor that shares memory
with an updated one (a view taken before the update) would have changed with it, and is refused when it is used. So is
an update of what was made outside the forward: an input, a parameter, a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch.control_flow.call_effects import OnACopy
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.loops.written_places import takes, written
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.tensor_indexing import writable

Function: TypeAlias = Callable[..., object]
Args: TypeAlias = tuple[object, ...]
Options: TypeAlias = dict[str, object]

_WRITE = torch.Tensor.__setitem__


def updated(capture: Capture, explorer: PathExplorer, function: Function, args: Args, kwargs: Options) -> object:
    """Make a call that writes in place on a copy. Returns what the call would: its target, or None.

    explorer: the one whose loop runs.
    """
    target = args[0] if args else None
    shown = _shown(capture, explorer, target)
    whole = target if shown is None else shown[0]
    tensors_now = explorer.loops.updated
    # What shows a part of a tensor that was updated since does not know the update.
    lost = isinstance(whole, torch.Tensor) and tensors_now.newest(whole) is not whole
    outer = not isinstance(whole, torch.Tensor) or explorer.recorder.is_outer(whole)
    if lost or outer or kwargs.get("out") is not None:
        return capture.execute(function, args, kwargs)  # compared with the other rounds, and refused there
    assert isinstance(whole, torch.Tensor)
    before = tensors_now.written_back
    if function is _WRITE and before and all(a is b for a, b in zip(args, before, strict=True)):
        return None  # Python writes the row of `out[i] += 1` back itself
    if shown is None:
        new = _replace(capture, explorer, function, whole, args[1:], kwargs)
        return None if function is _WRITE else new
    assert isinstance(target, torch.Tensor)
    new, index = _on_a_copy(capture, function, target, args[1:], kwargs), shown[1]
    tensors_now.written_back = (_replace(capture, explorer, _WRITE, whole, (index, new), {}), index, new)
    return None if function is _WRITE else new


def _shown(capture: Capture, explorer: PathExplorer, target: object) -> tuple[torch.Tensor, object] | None:
    """(the tensor that `target` shows a part of, by which index); None for a tensor that is no view by an index."""
    if id(target) in capture.rows_taken:  # a copy in the graph, a view in eager
        return capture.rows_taken[id(target)]
    if not isinstance(target, torch.Tensor):
        return None
    taken = explorer.recorder.maker(target)
    if taken is None or taken.function is not torch.Tensor.__getitem__:
        return None
    base, index = taken.args
    is_view = isinstance(base, torch.Tensor) and storage_key(base) == storage_key(target)
    return (base, index) if is_view and isinstance(base, torch.Tensor) else None


def _replace(
    capture: Capture, explorer: PathExplorer, function: Function, target: torch.Tensor, rest: Args, kwargs: Options
) -> torch.Tensor:
    sharing = explorer.recorder.sharing(target)
    new = _on_a_copy(capture, function, target, rest, kwargs)
    explorer.loops.updated.note(target, new, sharing)
    return new


def _on_a_copy(capture: Capture, function: Function, target: torch.Tensor, rest: Args, kwargs: Options) -> torch.Tensor:
    args: Args = (target, *rest)
    if function is _WRITE:
        index, value = rest
        if takes(target, index, value):
            return capture.execute(written, args)
        if capture.exporter == "dynamo":
            args = writable(capture, target, index, value)
    return capture.execute(OnACopy(function), args, kwargs)
