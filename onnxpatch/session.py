"""`Session`: an exported file in a runtime, called as the model is called and returning what the model returns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.arrays import Array, Output, as_array
from onnxpatch.onnxfile.rebuild import Classes, rebuilt
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS, checked_limit
from onnxpatch.onnxfile.runtimes.interface import LoadedGraph, Provider
from onnxpatch.onnxfile.runtimes.known import chosen
from onnxpatch.onnxfile.runtimes.onnxruntime import InOnnxRuntime, OnnxRuntime, open_session

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions


class Session:
    """An ONNX file in a runtime whose outputs have the structure that the model returned in eager.

    session(*inputs, **inputs_by_name): tensors or arrays, nested as the model takes them, in the order of the graph's
    inputs. Tensors in, tensors out; arrays in, arrays out. Returns dicts, lists and tuples as the model does, and None
    for an optional output whose flag says that it is missing. A dataclass, named tuple or ModelOutput is returned as a
    `Record`: `out.name`, `out["name"]`, `out[0]`. A file that onnxpatch did not write gives a plain list, or its only
    output.

    model: a path, or the bytes of a file. runtime: "onnxruntime", "openvino", "reference", "tensorrt", or one that a
    distribution adds. providers, options: as onnxruntime.InferenceSession takes them; other runtimes have none.
    classes: dataclasses, named tuples and ModelOutputs to return in place of `Record`. They are found by name and must
    have the fields that the file states. The file chooses no class and runs no code.
    max_seconds: how long one run may take, 120 by default; None for no limit.

    Raises InputError for a file that cannot be loaded, a runtime or a provider that is not installed, and inputs that
    do not fit, RunError where the runtime raises or reaches the limit. A damaged file can crash onnxruntime, and with
    it the process: open files that you do not trust in a process of their own.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        providers: Sequence[Provider] | None = None,
        classes: Iterable[type] = (),
        options: SessionOptions | None = None,
        max_seconds: float | None = DEFAULT_SECONDS,
        runtime: str = "onnxruntime",
    ) -> None:
        self._limit = checked_limit(max_seconds)
        self._classes = Classes(classes)
        source = model if isinstance(model, bytes) else os.fspath(model)
        if isinstance(source, str) and not os.path.isfile(source):
            raise InputError(f"there is no file {source!r}")
        self.inputs, self.outputs, metadata, self._loaded = _loaded(source, runtime, providers, options)
        self.structure = output_structure.read(metadata, self.outputs)
        if self.structure is not None:
            self._classes.check(self.structure)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        feed = self._feed(args, kwargs)
        values = self._loaded.run(None, {name: _array(value) for name, value in feed.items()}, self._limit)
        as_tensors = any(isinstance(value, torch.Tensor) for value in feed.values())
        return self._structured([_as_tensor(value) if as_tensors else _as_numpy(value) for value in values])

    def _feed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The inputs by name. Raises InputError where there are too many or too few."""
        # A keyword is an input of the graph by its name, or else an argument of the model whose leaves are inputs.
        flat = list(_leaves(args))
        named = {name: value for name, value in kwargs.items() if name in self.inputs}
        flat += [leaf for name, value in kwargs.items() if name not in named for leaf in _leaves(value)]
        positional = [name for name in self.inputs if name not in named]
        if len(flat) != len(positional):
            raise InputError(
                f"the graph takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"{len(flat) + len(named)} were given"
            )
        return {**dict(zip(positional, flat, strict=True)), **named}

    def _structured(self, values: list[Output]) -> Any:
        if self.structure is not None:
            return rebuilt(self.structure, dict(zip(self.outputs, values, strict=True)), self._classes)
        return values[0] if len(values) == 1 else values


_Described = tuple[list[str], list[str], Mapping[str, str], LoadedGraph]


def _loaded(
    source: str | bytes, runtime: str, providers: Sequence[Provider] | None, options: SessionOptions | None
) -> _Described:
    """(names of the inputs, names of the outputs, the file's metadata, the graph in the runtime)."""
    (named,) = chosen(runtime)
    if not named.takes_providers and (providers is not None or options is not None):
        raise InputError(f"providers= and options= are onnxruntime's, and runtime= is {runtime!r}")
    try:
        if isinstance(named, OnnxRuntime):
            return _in_onnxruntime(open_session(source, providers, options))
        return *_described(source), named.load(source, providers)
    except InputError:
        raise
    except UnicodeDecodeError:  # onnxruntime loads such a file, and raises when it is asked for the names
        raise InputError(f"{_source_name(source)}: its names or its metadata are not UTF-8: export it again") from None
    except Exception as error:
        words = " ".join(str(error)[:2000].split())[:500]
        raise InputError(f"{_source_name(source)}: {runtime} cannot load it: {words}") from error


def _in_onnxruntime(session: InferenceSession) -> _Described:
    inputs, outputs = ([node.name for node in nodes] for nodes in (session.get_inputs(), session.get_outputs()))
    return inputs, outputs, session.get_modelmeta().custom_metadata_map, InOnnxRuntime(session)


def _described(source: str | bytes) -> tuple[list[str], list[str], dict[str, str]]:
    """What other runtimes do not tell: the same, read from the file itself, but for the graph."""
    import onnx

    read = onnx.load(source, load_external_data=False) if isinstance(source, str) else onnx.load_from_string(source)
    weights = {one.name for one in read.graph.initializer}
    inputs = [one.name for one in read.graph.input if one.name not in weights]
    return inputs, [one.name for one in read.graph.output], {one.key: one.value for one in read.metadata_props}


def _source_name(source: str | bytes) -> str:
    return "the model given as bytes" if isinstance(source, bytes) else source


def _leaves(value: object) -> Iterator[object]:
    """The tensors, arrays and numbers in an argument; tuples, lists and mappings are opened, None is left out."""
    if isinstance(value, tuple | list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif value is not None:
        yield value


def _array(value: object) -> Array:
    import numpy as np

    try:
        return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"an input is neither a tensor nor an array: {error}") from None


def _as_numpy(value: Output) -> Output:
    """bfloat16 outputs, which are tensors, as float32 arrays."""
    return as_array(value) if isinstance(value, torch.Tensor) else value


def _as_tensor(value: Output) -> Output:
    """Arrays as tensors. None stays (an empty optional), and so do strings, which torch does not have."""
    import numpy as np

    numeric = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
    return torch.from_numpy(value) if numeric else value
