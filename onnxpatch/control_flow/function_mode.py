"""The torch function mode in force while branches are forked: every call is noted, or answered by `answers`."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.scalar_conversions import ANSWERS


class Forking(TorchFunctionMode):
    """Hands calls to the capture of the model that runs under an exporter."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # in a body of torch.cond, with which this method is compiled
            return function(*args, **kwargs)
        if self._capture.paused or not self._capture.frames:
            return function(*args, **kwargs)
        answer = ANSWERS.get(function)
        if answer is None:
            return self._capture.execute(function, args, kwargs)
        return answer(self._capture, function, *args, **kwargs)
