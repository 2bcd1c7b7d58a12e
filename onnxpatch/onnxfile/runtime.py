"""`Graph`: an ONNX file that can be run, in onnxruntime where it is installed, in onnx.reference where it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile import bfloat16
from onnxpatch.onnxfile.arrays import Array, Output, Session, as_array
from onnxpatch.onnxfile.graph import has_text_names
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS, LimitedRuns, checked_limit

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnx.reference import ReferenceEvaluator
    from onnxruntime import InferenceSession

    from onnxpatch.onnxfile.bfloat16 import BridgedSession

_NO_KERNEL = "NOT_IMPLEMENTED"  # onnxruntime's error code for an operator that it lacks for these types
RUNTIMES = ("onnxruntime", "reference")
_LONGEST = 10_000  # characters of a runtime's error that are read: names in a file may be megabytes


class Graph:
    """An ONNX file, loaded into a runtime.

    runtime: "onnxruntime", "reference", or None for onnxruntime where it is installed. With None, a graph with bfloat16
    that onnxruntime has no CPU kernel for runs in onnx.reference; `note` then says so.
    providers: onnxruntime's execution providers, None for its CPU's.
    max_seconds: how long one run may take, None for no limit. stopped: whether a run reached it.
    proto: the model without external weights. inputs: without initializers, which old files list too. outputs: names.

    Raises InputError where the file is missing or is not an ONNX model, RunError where the runtime refuses to load it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        runtime: str | None = None,
        max_seconds: float | None = DEFAULT_SECONDS,
        providers: Sequence[str] | None = None,
    ) -> None:
        if runtime not in (None, *RUNTIMES):
            raise InputError(f"runtime={runtime!r} is not known: use one of {', '.join(RUNTIMES)}")
        self.path = Path(path)
        self.max_seconds = checked_limit(max_seconds)
        self.stopped = False
        self.runtime = runtime or ("onnxruntime" if have_onnxruntime() else "reference")
        self.providers = checked_providers(providers) if self.runtime == "onnxruntime" else ()
        self.proto = load_graph(self.path)
        initializers = {i.name for i in self.proto.graph.initializer}
        self.inputs = [i for i in self.proto.graph.input if i.name not in initializers]
        self.outputs = [o.name for o in self.proto.graph.output]
        self.note = ""
        try:
            self._session = self._limited(open_session(str(self.path), self.runtime, self.providers))
        except RunError as error:
            if runtime is not None or _NO_KERNEL not in str(error) or not bfloat16.has_bfloat16(self.proto):
                raise
            self.note = f"compared in onnx.reference, since onnxruntime has no CPU kernel for this graph: {error}"
            self.runtime, self._session = "reference", self._limited(open_session(str(self.path), "reference"))

    def run(self, feed: Mapping[str, object]) -> list[Array | torch.Tensor]:
        """The outputs in order; one of ONNX's optional type that is empty is left out.

        feed: values by the names of the graph's inputs; tensors may be on any device, other names are ignored.
        Raises RunError where the runtime refuses the input, the time limit is reached, or an output is a sequence.
        """
        try:
            values = self._session.run(None, self.arrays(feed))
        except RunError as error:
            self.stopped = self.stopped or error.stopped
            raise
        except Exception as error:
            raise run_error(error) from error
        return [_tensor_value(name, v) for name, v in zip(self.outputs, values, strict=False) if v is not None]

    def run_another(self, proto: ModelProto, names: list[str], feed: Mapping[str, Array]) -> list[Output]:
        """The outputs `names` of another model, in the same runtime and under the same limit."""
        return self._limited(open_session(proto.SerializeToString(), self.runtime, self.providers)).run(names, feed)

    def _limited(self, session: Session | InferenceSession | BridgedSession) -> LimitedRuns:
        return LimitedRuns(session, self.max_seconds)

    def arrays(self, feed: Mapping[str, object]) -> dict[str, Array]:
        """The values of `feed` that are inputs of the graph, as arrays of the dtypes that the runtime takes."""
        dtypes = {i.name: i.type.tensor_type.elem_type for i in self.inputs}
        arrays = {name: _input_array(value, dtypes[name]) for name, value in feed.items() if name in dtypes}
        if self.runtime == "reference":
            arrays |= {name: _to_bfloat16(arrays[name]) for name in arrays if dtypes[name] == bfloat16.BFLOAT16}
        return arrays

    def input_shape(self, name: str) -> list[int | str | None]:
        """The declared shape of one input: sizes, names of dynamic dimensions, None where neither is declared."""
        value = next(i for i in self.inputs if i.name == name)
        dims = value.type.tensor_type.shape.dim
        return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]


def _tensor_value(name: str, value: Array | torch.Tensor | list[Array]) -> Array | torch.Tensor:
    if isinstance(value, list):
        raise RunError(f"output {name!r} is a sequence of {len(value)} tensors; only outputs that are tensors compare")
    return value


_BOILERPLATE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_RUNNING = re.compile(r"Non-zero status code returned while running (?P<op>\S+) node\. Name: ?'(?P<name>[^']*)' ")
_SOURCE = re.compile(r"(?:Status Message: )?(?:/\S+:\d+ .*?\) ?(?:const )?)?(?:[^.]{,120}? was false\. )?")


def run_error(error: Exception) -> RunError:
    """A runtime's error as a RunError with the node's name, without the line of onnxruntime's own source.

    `Add 'node_add_5': … Attempting to broadcast an axis by a dimension other than 1. 4 by 2`
    """
    text = _BOILERPLATE.sub("", " ".join(str(error)[:_LONGEST].split()))
    running = _RUNNING.search(text)
    if running is None:
        node = re.search(r"(?:Name|name)[:=]\s?'([^']+)'", text)
        return RunError(f"{type(error).__name__}: {text[:500]}", node[1] if node else None)
    reason = _SOURCE.sub("", text[running.end() :], count=1)
    return RunError(f"{running['op']} {running['name']!r}: {reason[:500]}", running["name"] or None)


def have_onnxruntime() -> bool:
    """Whether onnxruntime is installed."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def load_graph(path: Path) -> ModelProto:
    """The model in a file without its external weights: names, shapes, nodes.

    Raises InputError, which names the path, for what is not a file or not a usable ONNX model.
    """
    import onnx

    _check_is_file(path)
    try:
        proto = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise InputError(f"{path} is not a readable ONNX model ({type(error).__name__}): export it again") from None
    if not proto.graph.output or not proto.opset_import:
        raise InputError(f"{path} is not a usable ONNX model (no graph, or no outputs): export it again")
    if not has_text_names(proto):
        raise InputError(f"{path} is not a readable ONNX model (names that are not UTF-8): export it again")
    return proto


def _check_is_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder: name the ONNX file in it")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{str(path)[:60]}…: {error.strerror}") from None


CPU = ("CPUExecutionProvider",)


def checked_providers(providers: Sequence[str] | None) -> Sequence[str]:
    """onnxruntime's execution providers, those of the CPU by default. Raises InputError for one that is not there.

    onnxruntime itself would go on without it, and compare on the CPU what was to be compared elsewhere.
    """
    if providers is None or tuple(providers) == CPU or not have_onnxruntime():
        return CPU
    import onnxruntime

    there = onnxruntime.get_available_providers()
    unknown = [name for name in providers if name not in there]
    if unknown:
        raise InputError(f"providers: this onnxruntime has no {', '.join(unknown)}; it has {', '.join(there)}")
    return list(providers)


def open_session(
    model: str | bytes, runtime: str, providers: Sequence[str] = CPU
) -> Session | InferenceSession | BridgedSession:
    """A session for a file (str, its path) or a model in memory (bytes). Raises RunError where the runtime refuses."""
    try:
        return _onnxruntime(model, providers) if runtime == "onnxruntime" else _reference(model)
    except InputError:
        raise
    except Exception as error:
        name = "onnxruntime" if runtime == "onnxruntime" else "onnx.reference"
        raise RunError(f"{name} cannot load the graph: {' '.join(str(error).split())[:500]}") from error


def _onnxruntime(model: str | bytes, providers: Sequence[str]) -> InferenceSession | BridgedSession:
    if not have_onnxruntime():
        raise InputError("onnxruntime is not installed: pip install 'onnxpatch[verify]', or runtime='reference'")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it would print what it raises, with the file's names not made safe to print
    options.intra_op_num_threads = torch.get_num_threads()
    return bfloat16.bridged(onnxruntime.InferenceSession(model, options, providers=list(providers), enable_fallback=0))


def _reference(model: str | bytes) -> ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model)


def _input_array(value: object, elem_type: int) -> Array:
    """A tensor as an array of its own dtype, a Python number as one of the dtype that the graph declares."""
    if isinstance(value, torch.Tensor):
        return np.ascontiguousarray(as_array(value))
    import onnx

    return np.asarray(value, dtype=onnx.helper.tensor_dtype_to_np_dtype(elem_type))


def _to_bfloat16(array: Array) -> Array:
    """The float32 that `as_array` gives for bfloat16, as the ml_dtypes.bfloat16 that onnx.reference takes."""
    import onnx

    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(bfloat16.BFLOAT16))
