"""The TorchFunctionMode of an export with branches: sends every torch call to the capture, or to its substitute.

Inside a plain loop, updates in place are recorded as new tensors, so that its rounds can be compared and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch.control_flow.answers import QUESTIONS
from onnxpatch.control_flow.call_effects import OnACopy, is_mutation
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.loops.written_places import takes, written
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.control_flow.tensor_indexing import writable
from onnxpatch.decisions.ask import ask

Function: TypeAlias = Callable[..., object]
Args: TypeAlias = tuple[object, ...]
Options: TypeAlias = dict[str, object]
_WRITE = torch.Tensor.__setitem__
# Numbers of sizes. Not `sym_fresh_size`, which makes a new one, and not what tells torch a range.
_NAMES = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
_OF_SIZES = frozenset(getattr(torch, name) for name in _NAMES if hasattr(torch, name))


class CaptureMode(TorchFunctionMode):
    """Records torch calls in a capture; asks for the answer to those that make Python numbers."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: Collection[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # in a body of torch.cond, with which this method is compiled
            return function(*args, **kwargs)
        # No explorer: the root's paths are being merged, and these calls are the graph's, not a forward's.
        if self._capture.paused or not self._capture.explorers:
            return function(*args, **kwargs)
        # Their result is an expression of sizes, which says all of itself: nothing needs to be repeated.
        if function in _OF_SIZES and not tensors((args, kwargs)):
            return function(*args, **kwargs)
        capture = self._capture
        args, kwargs = capture.with_updates((args, kwargs))
        if is_mutation(function, kwargs) and (explorer := capture.looping()) is not None:
            return updated(capture, explorer, function, args, kwargs)
        # What a stand-in computes belongs to the path: choosing a number by sizes is part of the graph.
        answer = ask(function, args, kwargs, capture.recorded) if function in QUESTIONS else NotImplemented
        return capture.execute(function, args, kwargs) if answer is NotImplemented else answer


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
