"""Running an ONNX file: onnxruntime where it is installed, onnx.reference where it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile import bfloat16
from onnxpatch.onnxfile.arrays import as_array
from onnxpatch.onnxfile.graph import is_text
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS, LimitedRuns, checked_limit

_NO_KERNEL = "NOT_IMPLEMENTED"
RUNTIMES = ("onnxruntime", "reference")
_LONGEST = 10_000  # characters of a runtime's error that are read: names in a file may be megabytes


class Graph:
    """An ONNX file that can be run. runtime: 'onnxruntime', 'reference', or None for the first that is there.

    max_seconds: how long one run may take, None for no limit; `stopped`: whether a run took longer.
    Left to choose, bfloat16 that onnxruntime has no kernel for on the CPU is run in onnx.reference; `note` says so.

    Raises InputError where the file is missing or no ONNX model, RunError where the runtime refuses to load it.
    """

    def __init__(
        self, path: str | os.PathLike[str], runtime: str | None = None, max_seconds: float | None = DEFAULT_SECONDS
    ) -> None:
        if runtime not in (None, *RUNTIMES):
            raise InputError(f"runtime {runtime!r} is not known: use one of {', '.join(RUNTIMES)}")
        self.path = Path(path)
        self.max_seconds = checked_limit(max_seconds)
        self.stopped = False
        self.runtime = runtime or ("onnxruntime" if have_onnxruntime() else "reference")
        self.proto = load_graph(self.path)
        initializers = {i.name for i in self.proto.graph.initializer}
        self.inputs = [i for i in self.proto.graph.input if i.name not in initializers]
        self.outputs = [o.name for o in self.proto.graph.output]
        self.note = ""
        try:
            self._session = self._limited(open_session(str(self.path), self.runtime))
        except RunError as error:
            if runtime is not None or _NO_KERNEL not in str(error) or not bfloat16.holds(self.proto):
                raise
            self.note = f"compared in onnx.reference, since onnxruntime has no kernel on the CPU: {error}"
            self.runtime, self._session = "reference", self._limited(open_session(str(self.path), "reference"))

    def run(self, feed: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
        """Outputs in order, without those that an ONNX optional leaves out. Tensors on any device may be fed."""
        try:
            found = [o for o in self._session.run(None, self.arrays(feed)) if o is not None]
        except RunError as error:
            self.stopped = self.stopped or error.stopped
            raise
        except Exception as error:
            raise run_error(error) from error
        for name, value in zip(self.outputs, found, strict=False):
            if isinstance(value, list):
                raise RunError(f"output {name!r} is a sequence of {len(value)} tensors, where the model gives a tensor")
        return found

    def run_another(self, proto: Any, names: list[str], feed: Mapping[str, Any]) -> list[Any]:
        """Outputs of another model in memory, in the same runtime and under the same limit."""
        return self._limited(open_session(proto.SerializeToString(), self.runtime)).run(names, feed)

    def _limited(self, session: Any) -> LimitedRuns:
        return LimitedRuns(session, self.max_seconds)

    def arrays(self, feed: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Those of the values fed that are inputs of the graph, as it takes them."""
        wanted = {i.name: i.type.tensor_type.elem_type for i in self.inputs}
        fed = {name: _fed(value, wanted[name]) for name, value in feed.items() if name in wanted}
        if self.runtime == "reference":
            fed |= {name: _narrow(fed[name]) for name in fed if wanted[name] == bfloat16.BFLOAT16}
        return fed

    def input_shape(self, name: str) -> list[int | str | None]:
        """Declared shape of one input: whole numbers, names, None where nothing is said."""
        value = next(i for i in self.inputs if i.name == name)
        dims = value.type.tensor_type.shape.dim
        return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]


_BOILERPLATE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_RUNNING = re.compile(r"Non-zero status code returned while running (?P<op>\S+) node\. Name: ?'(?P<name>[^']*)' ")
_SOURCE = re.compile(r"(?:Status Message: )?(?:/\S+:\d+ .*?\) ?(?:const )?)?(?:[^.]{,120}? was false\. )?")


def run_error(error: Exception) -> RunError:
    """The runtime's words without its own source line: `Add 'node_add_5': … broadcast … 4 by 2`."""
    text = _BOILERPLATE.sub("", " ".join(str(error)[:_LONGEST].split()))
    running = _RUNNING.search(text)
    if running is None:
        named = re.search(r"(?:Name|name)[:=]\s?'([^']+)'", text)
        return RunError(f"{type(error).__name__}: {text[:500]}", named[1] if named else None)
    said = _SOURCE.sub("", text[running.end() :], count=1)
    return RunError(f"{running['op']} {running['name']!r}: {said[:500]}", running["name"] or None)


def have_onnxruntime() -> bool:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def load_graph(path: Path) -> Any:
    """The model without its external weights: names, shapes, nodes."""
    import onnx

    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the ONNX file in it")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{str(path)[:60]}…: {error.strerror}") from None
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise InputError(f"{path} is no readable ONNX model ({type(error).__name__}): export it again") from None
    if not proto.graph.output or not proto.opset_import:
        raise InputError(f"{path} is no readable ONNX model (no graph, or one without outputs): export it again")
    if not is_text(proto):
        raise InputError(f"{path} is no readable ONNX model (names that are no text): export it again")
    return proto


def open_session(model: str | bytes, runtime: str) -> Any:
    """A session of a file, or of a model in memory. Raises RunError where the runtime refuses it."""
    try:
        return _onnxruntime(model) if runtime == "onnxruntime" else _reference(model)
    except InputError:
        raise
    except Exception as error:
        name = "onnxruntime" if runtime == "onnxruntime" else "onnx.reference"
        raise RunError(f"{name} cannot load the graph: {' '.join(str(error).split())[:500]}") from error


def _onnxruntime(model: str | bytes) -> Any:
    if not have_onnxruntime():
        raise InputError("onnxruntime is not installed: pip install onnxruntime, or runtime='reference'")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    return bfloat16.bridged(
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    )


def _reference(model: str | bytes) -> Any:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model)


def _fed(value: Any, elem_type: int) -> np.ndarray[Any, Any]:
    """An array of the dtype that the graph declares for a Python number; tensors keep theirs."""
    if isinstance(value, torch.Tensor):
        return np.ascontiguousarray(as_array(value))
    import onnx

    return np.asarray(value, dtype=onnx.helper.tensor_dtype_to_np_dtype(elem_type))


def _narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 as onnx.reference knows bfloat16."""
    import onnx

    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(bfloat16.BFLOAT16))
