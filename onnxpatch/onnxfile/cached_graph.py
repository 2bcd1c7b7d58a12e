"""`CachedGraph`: one graph of a generation loop, whose states go in as they came out, without a copy.

past_key_values.0.key  ->  present.0.key       an output of one run, an input of the next: onnxruntime's own memory
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile import denormals
from onnxpatch.onnxfile.bfloat16 import BFLOAT16, value_of
from onnxpatch.onnxfile.runtimes.interface import Provider
from onnxpatch.onnxfile.runtimes.onnxruntime import open_session, quiet_options, run_error

if TYPE_CHECKING:
    from onnxruntime import OrtValue

_PAST, _PRESENT = "past_key_values", "present"
_DTYPES = {
    "tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(bfloat16)": torch.bfloat16,
    "tensor(double)": torch.float64, "tensor(int64)": torch.int64, "tensor(int32)": torch.int32,
    "tensor(bool)": torch.bool,
}  # fmt: skip

States: TypeAlias = dict[str, Any]  # by the name of an input: a tensor, or what onnxruntime gave


class CachedGraph:
    """A file in onnxruntime. inputs: their declared shapes by name. states: the names of those that are states."""

    def __init__(self, path: Path, providers: Sequence[Provider] | None = None) -> None:
        options = quiet_options()
        options.add_session_config_entry(denormals.POOL_OPTION, "1")
        # The first session of a process that flushes denormals sets the thread that opens it, for good.
        with denormals.kept():
            try:
                self._session = open_session(str(path), providers, options)
            except InputError:
                raise
            except Exception as error:
                raise InputError(f"{path}: onnxruntime cannot load it: {' '.join(str(error)[:500].split())}") from error
        self.name = path.name
        nodes = self._session.get_inputs()
        self.inputs: dict[str, list[Any]] = {node.name: node.shape for node in nodes}
        self._dtypes = {node.name: _DTYPES.get(node.type) for node in nodes}
        self.outputs = [node.name for node in self._session.get_outputs()]
        self.states = [name for name in self.inputs if name.startswith(_PAST)]
        first = self._session.get_providers()[0]
        self._device = "cuda" if first.startswith(("CUDA", "Tensorrt")) else "cpu"

    def empty(self, batch: int) -> States:
        """The states before the first token: zeros of a fixed size, keys and values of length 0."""
        shapes = {
            name: [size if isinstance(size, int) else 0 for size in self.inputs[name][1:]] for name in self.states
        }
        return {name: torch.zeros(batch, *shape, dtype=self._dtypes[name]) for name, shape in shapes.items()}

    def __call__(
        self, feed: Mapping[str, torch.Tensor], states: Mapping[str, Any]
    ) -> tuple[dict[str, torch.Tensor], States]:
        """(the outputs by name, the states by the names of the inputs that they are in the next step).

        feed: what the graph has no input for is left out. Raises InputError for an input that is missing.
        """
        given = {name: states[name] if name in states else feed.get(name) for name in self.inputs}
        if missing := [name for name, value in given.items() if value is None]:
            raise InputError(f"{self.name} needs {', '.join(missing)}: give it by that name")
        binding, held = self._session.io_binding(), []
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                value = value.detach().to("cpu", self._dtypes[name]).contiguous()
                held.append(value)  # onnxruntime keeps the address alone
                number = BFLOAT16 if value.dtype == torch.bfloat16 else _numpy_dtype(value)
                binding.bind_input(name, "cpu", 0, number, list(value.shape), value.data_ptr())
            else:
                binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name, self._device if name.startswith(_PRESENT) else "cpu")
        try:
            with denormals.flushed():
                self._session.run_with_iobinding(binding)
        except Exception as error:
            raise run_error(error) from error
        found = dict(zip(self.outputs, binding.get_outputs(), strict=True))
        after = {
            f"{_PAST}{name.removeprefix(_PRESENT)}": value
            for name, value in found.items()
            if name.startswith(f"{_PRESENT}.")
        }
        return {name: _tensor(value) for name, value in found.items() if not name.startswith(f"{_PRESENT}.")}, after


def rows_of(states: States, rows: torch.Tensor) -> States:
    """The same states for these texts of the batch, in this order: of beams, or of several answers."""
    whole = {name: one if isinstance(one, torch.Tensor) else _tensor(one) for name, one in states.items()}
    return {name: one.index_select(0, rows) for name, one in whole.items()}


def _numpy_dtype(value: torch.Tensor) -> Any:
    return value.new_empty(0).numpy().dtype


def _tensor(value: OrtValue) -> torch.Tensor:
    found: Any = value_of(value) if value.device_name() == "cpu" else value.numpy()
    return found if isinstance(found, torch.Tensor) else torch.from_numpy(found)
