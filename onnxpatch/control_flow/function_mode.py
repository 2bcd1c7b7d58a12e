"""The TorchFunctionMode of an export with branches: sends every torch call to the capture, or to its substitute."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.control_flow.answers import QUESTIONS
from onnxpatch.control_flow.call_effects import is_mutation
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.nests import tensors
from onnxpatch.control_flow.updates_in_place import updated
from onnxpatch.decisions.ask import ask

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
