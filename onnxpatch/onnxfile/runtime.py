"""`Graph`: an ONNX file that can be run, in one of the runtimes of `runtimes/`; with its inner values and its time.

The runtimes by name are the kit's own, and those that other distributions add, each by an entry point of the group
"onnxpatch.runtimes", whose object is a subclass of `onnxpatch.Runtime`:

    [options.entry_points]
    onnxpatch.runtimes =
        myruntime = my_package.runtime:MyRuntime
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.limits import addresses_limited
from onnxpatch.onnxfile.graph import has_text_names
from onnxpatch.onnxfile.mapped_weights import is_large, without_weights
from onnxpatch.onnxfile.runtimes import onnxruntime, openvino, tensorrt
from onnxpatch.onnxfile.runtimes.interface import (
    DEFAULT_SECONDS,
    REFERENCE,
    Array,
    LoadedGraph,
    Output,
    Provider,
    Runtime,
    as_array,
    checked_limit,
)
from onnxpatch.onnxfile.trial_process import survives

ENTRY_POINTS = "onnxpatch.runtimes"
OWN: tuple[Runtime, ...] = (onnxruntime.RUNTIME, openvino.RUNTIME, REFERENCE, tensorrt.RUNTIME)


# Once: importing what an entry point names may take seconds.
@functools.cache
def runtimes() -> tuple[dict[str, Runtime], dict[str, str]]:
    """(runtimes by name, reasons by entry point for those that could not be loaded). One broken distribution must not
    take the others with it."""
    found = {own.name: own for own in OWN}
    failures: dict[str, str] = {}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            made = entry.load()()
            if not isinstance(made, Runtime) or made.name in found:
                raise TypeError("it must name a subclass of onnxpatch.Runtime whose name no other runtime has")
            found[made.name] = made
        except Exception as error:
            failures[f"entry point {entry.name} = {entry.value}"] = f"{type(error).__name__}: {error}"
    return found, failures


def chosen_runtimes(runtime: str | Sequence[str] | None) -> list[Runtime]:
    """The runtimes that `runtime=` names: a name, or several. None: onnxruntime, or onnx.reference where it is absent.

    Raises InputError for a name that is not known, and for a runtime that is not installed.
    """
    found, failures = runtimes()
    names = [runtime] if isinstance(runtime, str) else list(dict.fromkeys(runtime or ()))
    if not names:
        return [found["onnxruntime"] if found["onnxruntime"].available() else found["reference"]]
    for name in names:
        if name not in found:
            broken = "".join(f"; {entry} could not be loaded: {reason}" for entry, reason in failures.items())
            raise InputError(f"runtime={name!r} is not known: use one or several of {', '.join(found)}{broken}")
        found[name].check_available()
    return [found[name] for name in names]


if TYPE_CHECKING:
    from onnx import ModelProto

_NO_KERNEL = "NOT_IMPLEMENTED"  # onnxruntime's error code for an operator that it lacks for these types
_ELSEWHERE = "; the file needs another runtime or other providers: runtime='reference' compares it without onnxruntime"
_LONGEST = 10_000  # characters of a runtime's error that are read: names in a file may be megabytes
_LARGEST = 1 << 30  # bytes: a larger file is not read into memory a second time
_ROUNDS = 15


class Graph:
    """An ONNX file, loaded into a runtime.

    runtime: a name, such as "openvino", or None for onnxruntime where it is installed and onnx.reference where it is
    not. providers: onnxruntime's execution providers, None for the CPU's.
    max_seconds: how long one run may take, None for no limit. stopped: whether a run reached it.
    max_bytes: how much memory one run may take, where the system can limit it (`limits.py`).
    proto: the model without external weights. inputs: without initializers, which old files list too. outputs: names.

    Raises InputError where the file is missing or is not an ONNX model, RunError where the runtime refuses to load it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        runtime: str | None = None,
        max_seconds: float | None = DEFAULT_SECONDS,
        providers: Sequence[Provider] | None = None,
    ) -> None:
        (self._runtime,) = chosen_runtimes(runtime)
        self.path = Path(path)
        self.max_seconds = checked_limit(max_seconds)
        self.max_bytes = math.inf
        self.stopped = False
        self.proto = load_graph(self.path)
        initializers = {i.name for i in self.proto.graph.initializer}
        self.inputs = [i for i in self.proto.graph.input if i.name not in initializers]
        self.outputs = [o.name for o in self.proto.graph.output]
        self._providers = providers
        self._loaded = open_graph(str(self.path), self._runtime, providers)

    @property
    def runtime(self) -> str:
        """The name of the runtime."""
        return self._runtime.name

    def run(self, feed: Mapping[str, object]) -> list[Array | torch.Tensor]:
        """The outputs in order; one of ONNX's optional type that is empty is left out.

        feed: values by the names of the graph's inputs; tensors may be on any device, other names are ignored.
        Raises RunError where the runtime refuses the input, the time limit is reached, or an output is a sequence.
        """
        try:
            with addresses_limited(self.max_bytes if self._providers is None else math.inf):
                values = self._loaded.run(None, self.arrays(feed), self.max_seconds)
        except RunError as error:
            self.stopped = self.stopped or error.stopped
            raise
        except Exception as error:  # a runtime that does not translate its errors
            raise RunError(f"{type(error).__name__}: {' '.join(str(error)[:_LONGEST].split())[:500]}") from error
        return [_tensor_value(name, v) for name, v in zip(self.outputs, values, strict=False) if v is not None]

    def survives(self, feed: Mapping[str, object]) -> bool:
        """Whether the process lives on after a run with these values; the outputs do not matter."""
        arrays = self.arrays(feed)

        def run() -> None:
            with contextlib.suppress(RunError):
                open_graph(str(self.path), self._runtime, self._providers).run(None, arrays, None)

        # The graph is loaded again: a copy of this process has none of the threads of the loaded one.
        return survives(run, self.max_seconds or DEFAULT_SECONDS)

    def run_another(self, proto: ModelProto, names: list[str], feed: Mapping[str, Array]) -> list[Output]:
        """The outputs `names` of another model, in the same runtime and under the same limit."""
        another = open_graph(proto.SerializeToString(), self._runtime, self._providers)
        return another.run(names, feed, self.max_seconds)

    def arrays(self, feed: Mapping[str, object]) -> dict[str, Array]:
        """The values of `feed` that are inputs of the graph, as arrays of the dtypes that the runtime takes."""
        dtypes = {i.name: i.type.tensor_type.elem_type for i in self.inputs}
        return {name: _input_array(value, dtypes[name]) for name, value in feed.items() if name in dtypes}

    def input_shape(self, name: str) -> list[int | str | None]:
        """The declared shape of one input: sizes, names of dynamic dimensions, None where neither is declared."""
        value = next(i for i in self.inputs if i.name == name)
        dims = value.type.tensor_type.shape.dim
        return [d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in dims]


def load_graphs(
    path: str | os.PathLike[str],
    runtime: str | Sequence[str] | None,
    max_seconds: float | None,
    providers: Sequence[Provider] | None,
) -> list[Graph]:
    """The file in each of the runtimes that `runtime` names. Raises as `Graph` does."""
    named = chosen_runtimes(runtime)
    if providers is not None and not any(one.takes_providers for one in named):
        raise InputError(
            f"providers={list(providers)!r} are onnxruntime's, and runtime= names {', '.join(r.name for r in named)}"
        )
    if runtime is None:
        return [Graph(path, None, max_seconds, providers)]
    return [Graph(path, one.name, max_seconds, providers) for one in named]


def _tensor_value(name: str, value: Array | torch.Tensor | list[Array]) -> Array | torch.Tensor:
    if isinstance(value, list):
        raise RunError(f"output {name!r} is a sequence of {len(value)} tensors; only outputs that are tensors compare")
    return value


def load_graph(path: Path) -> ModelProto:
    """The model in a file without its external weights, and without any where it is large: names, shapes, nodes.

    Raises InputError, which names the path, for what is not a file or not a usable ONNX model.
    """
    import onnx

    _check_is_file(path)
    try:
        proto = (
            onnx.load_from_string(without_weights(path))
            if is_large(path)
            else onnx.load(str(path), load_external_data=False)
        )
    except Exception as error:
        raise InputError(f"{path} is not a readable ONNX model ({type(error).__name__}): export it again") from None
    # protobuf reads many files that are no models as a message with nothing in it.
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


def open_graph(model: str | bytes, runtime: Runtime, providers: Sequence[Provider] | None = None) -> LoadedGraph:
    """A file (str, its path) or a model in memory (bytes) in a runtime. Raises RunError where the runtime refuses."""
    try:
        return runtime.load(model, providers if runtime.takes_providers else None)
    except InputError:
        raise
    except Exception as error:
        reason = " ".join(str(error)[:_LONGEST].split())[:500]
        reason += _ELSEWHERE if _NO_KERNEL in reason else ""
        raise RunError(f"{runtime.name} cannot load the graph: {reason}", getattr(error, "node", None)) from error


def _input_array(value: object, elem_type: int) -> Array:
    """A tensor as an array of its own dtype, a Python number as one of the dtype that the graph declares."""
    if isinstance(value, torch.Tensor):
        return np.asarray(as_array(value), order="C")  # ascontiguousarray makes one dimension of none
    import onnx

    return np.asarray(value, dtype=onnx.helper.tensor_dtype_to_np_dtype(elem_type))


def intermediate_values(graph: Graph, feed: Mapping[str, object]) -> dict[str, Array]:
    """The inputs and every tensor of the main graph, by name, when it runs on `feed`. Sequences are left out.

    {} for a file above 1 GiB, and where the runtime refuses the input. Callers use the values to name the node at
    fault; the verdict does not depend on them.
    """
    import onnx

    if graph.path.stat().st_size > _LARGEST:
        return {}
    try:
        proto = onnx.load(str(graph.path))
    except Exception:  # onnx raises errors of many classes where a file with weights is missing
        return {}
    outputs = [output.name for output in proto.graph.output]
    computed = dict.fromkeys(name for node in proto.graph.node for name in node.output if name)
    names = [*outputs, *(name for name in computed if name not in outputs)]
    # Without a type: runtimes infer it, and the file may not say it.
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names[len(outputs) :])
    arrays = graph.arrays(feed)
    try:
        values = graph.run_another(proto, names, arrays)
    except Exception:  # both runtimes raise errors of many classes for an input that a node refuses
        return {}
    tensors = {n: as_array(v) for n, v in zip(names, values, strict=True) if not isinstance(v, list) and v is not None}
    return tensors | arrays


def intermediate_shapes(graph: Graph, feed: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """The shape of every intermediate value, under the same conditions."""
    return {name: tuple(np.shape(value)) for name, value in intermediate_values(graph, feed).items()}


def times_as_long(one: Callable[[], object], other: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """How many times as long `one` takes as `other`: the ratio of the medians of processor time in this thread.

    Both run in turns, after two rounds that do not count, so that other work on the machine meets both alike.
    """
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 2):
        for run, times in zip((one, other), taken, strict=True):
            # Of this thread only: what other threads of the runtime compute is counted for neither.
            began = time.thread_time()
            run()
            if turn > 1:
                times.append(time.thread_time() - began)
    return statistics.median(taken[0]) / max(statistics.median(taken[1]), 1e-9)
