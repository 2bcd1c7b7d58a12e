"""Running an exported file as the model was called: `Session` gives back the structure that eager returned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.errors import InputError, OnnxpatchError
from onnxpatch.onnxfile import bfloat16, output_structure
from onnxpatch.onnxfile.arrays import as_array
from onnxpatch.onnxfile.rebuild import Classes, rebuilt
from onnxpatch.onnxfile.run_limit import DEFAULT_SECONDS, LimitedRuns, checked_limit
from onnxpatch.onnxfile.runtime import run_error


class Session:
    """onnxruntime, with the outputs put together again.

    session(*inputs, **inputs_by_name): tensors or arrays, nested as the model takes them, in the order of the graph's
    inputs. Returns what the model returns: None where a flag says that an output is missing, dicts, lists and tuples.
    A dataclass, named tuple or ModelOutput comes back as a `Record`: `out.name`, `out["name"]`, `out[0]`. A file
    without the kit's metadata gives its outputs as a plain list (one output: itself).

    model: a path, or the bytes of a file. classes: dataclasses, named tuples and ModelOutputs to make the outputs from
    instead; found by name, with exactly the fields that the file states. The file itself chooses no class and no code.
    max_seconds: how long one run may take, 120 unless said otherwise, None for no limit.

    Raises InputError for a file that cannot be loaded and for inputs that do not fit, RunError where the runtime stops
    or is stopped, ImportError without onnxruntime. onnxruntime reads the file in this process: a broken file that makes
    onnxruntime itself crash ends the process. Open files that you do not trust in a process of their own.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        classes: Iterable[type] = (),
        options: Any = None,
        max_seconds: float | None = DEFAULT_SECONDS,
    ) -> None:
        limit = checked_limit(max_seconds)
        self._classes = Classes(classes)
        given = model if isinstance(model, bytes) else os.fspath(model)
        if isinstance(given, str) and not os.path.isfile(given):
            raise InputError(f"there is no file {given!r}")
        self.session = _opened(given, providers, options)
        try:
            self.inputs = [node.name for node in self.session.get_inputs()]
            self.outputs = [node.name for node in self.session.get_outputs()]
            metadata = self.session.get_modelmeta().custom_metadata_map
        except UnicodeDecodeError:
            raise InputError(f"{_called(given)}: its names or its metadata are no text") from None
        self.structure = output_structure.read(metadata, self.outputs)
        if self.structure is not None:
            self._classes.check(self.structure)
        self._runs = LimitedRuns(bfloat16.bridged(self.session), limit)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        feed = self._feed(args, kwargs)
        try:
            values = self._runs.run(None, {name: _array(value) for name, value in feed.items()})
        except OnnxpatchError:
            raise
        except Exception as error:
            raise run_error(error) from error
        torch_too = any(isinstance(value, torch.Tensor) for value in feed.values())
        return self._put_together([_tensor(value) if torch_too else _widened(value) for value in values])

    def _feed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by name. Raises InputError where there are too many or too few."""
        flat = list(_leaves(args))
        named = {name: value for name, value in kwargs.items() if name in self.inputs}
        flat += [leaf for name, value in kwargs.items() if name not in named for leaf in _leaves(value)]
        free = [name for name in self.inputs if name not in named]
        if len(flat) != len(free):
            raise InputError(
                f"the graph takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"{len(flat) + len(named)} were given"
            )
        return {**dict(zip(free, flat, strict=True)), **named}

    def _put_together(self, values: list[Any]) -> Any:
        if self.structure is not None:
            return rebuilt(self.structure, dict(zip(self.outputs, values, strict=True)), self._classes)
        return values[0] if len(values) == 1 else values


def _opened(given: str | bytes, providers: Sequence[str], options: Any) -> Any:
    import onnxruntime

    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it would log is raised, without the file's names as they are
    # Without any but the CPU's provider there is nothing to fall back to; trying it prints the error as it is.
    fallback = int(list(providers) != ["CPUExecutionProvider"])
    try:
        return onnxruntime.InferenceSession(given, options, providers=list(providers), enable_fallback=fallback)
    except Exception as error:
        words = " ".join(str(error)[:2000].split())[:500]
        raise InputError(f"{_called(given)}: onnxruntime cannot load it: {words}") from error


def _called(given: str | bytes) -> str:
    return "the model given as bytes" if isinstance(given, bytes) else given


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif value is not None:
        yield value


def _array(value: Any) -> Any:
    import numpy as np

    try:
        return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"an input is neither a tensor nor an array: {error}") from None


def _widened(value: Any) -> Any:
    """numpy has no bfloat16."""
    return as_array(value) if isinstance(value, torch.Tensor) else value


def _tensor(value: Any) -> Any:
    """ONNX's own optional type comes back as None, or as an array."""
    import numpy as np

    known = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"  # torch has no strings
    return torch.from_numpy(value) if known else value
