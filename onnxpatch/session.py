"""Running an exported file as the model was called: `Session` gives back the structure that eager returned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile import bfloat16, output_structure
from onnxpatch.onnxfile.arrays import as_array


class Session:
    """onnxruntime, with the outputs put together again.

    session(*inputs, **inputs_by_name): tensors or arrays, nested as the model takes them, in the order of the graph's
    inputs. Returns what the model returns: None where a flag says that an output is missing, dicts, tuples and
    dataclasses rebuilt. A file without the kit's metadata gives its outputs as a plain list (one output: itself).

    model: a path, or the bytes of a file. classes: dataclasses and named tuples of the output, where their module is
    not imported. Raises InputError for inputs that do not fit, ImportError without onnxruntime.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        classes: Iterable[type] = (),
        options: Any = None,
    ) -> None:
        import onnxruntime

        given = model if isinstance(model, bytes) else os.fspath(model)
        if isinstance(given, str) and not os.path.exists(given):
            raise InputError(f"there is no file {given!r}")
        self.session = onnxruntime.InferenceSession(given, options, providers=list(providers))
        self.inputs = [node.name for node in self.session.get_inputs()]
        self.outputs = [node.name for node in self.session.get_outputs()]
        self.structure = output_structure.read(self.session.get_modelmeta().custom_metadata_map)
        self._run = bfloat16.bridged(self.session).run
        self._classes = {cls.__name__: cls for cls in classes}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat = list(_leaves(args))
        named = {name: value for name, value in kwargs.items() if name in self.inputs}
        flat += [leaf for name, value in kwargs.items() if name not in named for leaf in _leaves(value)]
        free = [name for name in self.inputs if name not in named]
        if len(flat) != len(free):
            raise InputError(
                f"the graph takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), "
                f"{len(flat) + len(named)} were given"
            )
        feed = {**dict(zip(free, flat, strict=True)), **named}
        values = self._run(None, {name: _array(value) for name, value in feed.items()})
        torch_too = any(isinstance(value, torch.Tensor) for value in feed.values())
        return self._put_together([_tensor(value) if torch_too else _widened(value) for value in values])

    def _put_together(self, values: list[Any]) -> Any:
        if self.structure is not None:
            return output_structure.rebuilt(self.structure, dict(zip(self.outputs, values, strict=True)), self._classes)
        return values[0] if len(values) == 1 else values


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

    return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _widened(value: Any) -> Any:
    """numpy has no bfloat16."""
    return as_array(value) if isinstance(value, torch.Tensor) else value


def _tensor(value: Any) -> Any:
    """ONNX's own optional type comes back as None, or as an array."""
    import numpy as np

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value
