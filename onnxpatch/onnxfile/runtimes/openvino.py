"""OpenVINO, on the CPU, in float32."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from onnxpatch.errors import RunError
from onnxpatch.onnxfile.runtimes import openvino_child as child
from onnxpatch.onnxfile.runtimes.interface import Array, LoadedGraph, Output, Provider, Runtime, importable, stopped

if TYPE_CHECKING:
    from openvino import CompiledModel

_LONGEST = 10_000  # characters of an error that are read: names in a file may be megabytes
_SOURCE = re.compile(r"Exception from \S+:\d+: ?|(?:Check|Assertion) '.*?' failed at \S+:\d+: ?|^.*\bError: (?=Exc)")
_LOOPS = {"Loop", "TensorIterator"}


class _OpenVino(Runtime):
    """openvino.Core, compiled for the CPU."""

    name = "openvino"
    distribution = "'onnxpatch[openvino]'"

    def available(self) -> bool:
        return importable("openvino")

    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        import openvino

        try:
            compiled = child.compiled(model, torch.get_num_threads())
            loops = _has_loop(openvino.Core().read_model(model))
        except RuntimeError as error:
            raise openvino_error(error) from error
        return _LoopInOpenVino(compiled, model) if loops else _InOpenVino(compiled)


def _has_loop(model: Any) -> bool:
    """Whether a model, or a branch of an If in it, has a loop. model: an openvino.Model."""
    for node in model.get_ops():
        kind = node.get_type_name()
        if kind in _LOOPS or (kind == "If" and any(_has_loop(node.get_function(side)) for side in (0, 1))):
            return True
    return False


class _InOpenVino:
    """A compiled model. A run that reaches its limit goes on in the background until it ends."""

    def __init__(self, compiled: CompiledModel) -> None:
        self._compiled = compiled

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        try:
            request = child.started(self._compiled, feed)
            if seconds is None:
                request.wait()
            elif not request.wait_for(max(1, int(seconds * 1000))):
                # A wish: nobody waits for it, and the run may go on.
                request.cancel()
                raise stopped(seconds)
            return [_output(*raw) for raw in child.outputs(self._compiled, request, names)]
        except RuntimeError as error:
            raise openvino_error(error) from error


class _LoopInOpenVino(_InOpenVino):
    """A graph with a loop: where there is a limit, each run is a process of its own, since that alone can be ended."""

    def __init__(self, compiled: CompiledModel, model: str | bytes) -> None:
        super().__init__(compiled)
        self._model = model

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        if seconds is None:
            return super().run(names, feed, None)
        path = self._model if isinstance(self._model, str) else ""
        # A model in memory travels with the inputs, under a name that none of them has.
        content = [("", np.frombuffer(self._model, np.uint8))] if isinstance(self._model, bytes) else []
        command = [sys.executable, "-m", child.__name__, str(torch.get_num_threads()), path, json.dumps(names)]
        # The child finds the same packages, however this process came to its sys.path.
        folders = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        asked = child.packed([*feed.items(), *content])
        try:
            done = subprocess.run(command, input=asked, capture_output=True, timeout=seconds, env=folders)
        except subprocess.TimeoutExpired:
            raise stopped(seconds) from None
        # Before the error stands the child's traceback.
        if done.returncode:
            raise openvino_error(RuntimeError(done.stderr.decode(errors="replace")[-_LONGEST:].partition("Error: ")[2]))
        return [_output(array, bool(bits)) for bits, array in child.unpacked(done.stdout)]


def _output(array: Array, bits: bool) -> Output:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if bits else array


def openvino_error(error: Exception) -> RunError:
    """An error of OpenVINO as a RunError, without the lines of OpenVINO's own source.

    It names no node: OpenVINO rewrites the graph first, and a node's name may be that of one that was merged into it.
    """
    return RunError(_SOURCE.sub("", " ".join(str(error)[:_LONGEST].split()))[:500].strip())


RUNTIME = _OpenVino()
