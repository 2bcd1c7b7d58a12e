"""A session of onnxruntime that is called again and again: its inputs are checked, its arrays stay where they are.

onnxruntime copies inputs and allocates outputs in every run. Those of a `BoundCall` it reads and writes in place: the
caller fills the arrays that it bound, and calls. A `CachedGraph` is one graph of a generation loop, whose states go in
as they came out, without a copy:

past_key_values.0.key  ->  present.0.key       an output of one run, an input of the next: onnxruntime's own memory

Numbers below 1.2e-38 (denormals) count as zero meanwhile. A masked softmax makes many, and a processor takes many times
longer for an operation on one: attention with a mask gets up to three times slower. onnxruntime has an option,
`_POOL_OPTION`. It reaches the threads of a session's own pool, but the calling thread only in the first session of a
process, and that thread then stays so. Here the calling thread is set for the length of a run, and set back.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.graph import model_name
from onnxpatch.onnxfile.runtimes.interface import BFLOAT16, Array, Output, Provider, value_of
from onnxpatch.onnxfile.runtimes.onnxruntime import open_session, quiet_options, run_error
from onnxpatch.process import undone

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, NodeArg, OrtValue, SessionOptions

# onnxruntime's names for element types, and NumPy's; what is not listed has the same name in both.
_NAMES = {"float": "float32", "double": "float64", "string": "str", "bfloat16": "bfloat16"}
_FED_AS = {"bfloat16": "float32"}  # NumPy has no bfloat16: the bridge takes float32 for it
_POOL_OPTION = "session.set_denormal_as_zero"
_SMALL = np.array([1e-30, 1e-9], dtype=np.float32)
_PAST, _PRESENT = "past_key_values", "present"
States: TypeAlias = dict[str, Any]  # by the name of an input: a tensor, or what onnxruntime gave


def described_input(node: NodeArg) -> str:
    """One input or output: its name, dtype and shape, with the names of sizes that may change."""
    dims = ",".join("?" if size in (None, "") else str(size) for size in node.shape or ())
    return f"{node.name} {_dtype(node)}[{dims}]"


def check_input(node: NodeArg, value: Array) -> None:
    """Raise InputError where an array has another dtype, rank or size than the input declares."""
    wanted = _dtype(node)
    if not node.type.startswith("tensor("):  # an optional or a sequence: onnxruntime says what is wrong with it
        return
    found = "str" if value.dtype.kind in "USO" else value.dtype.name
    shape = f"{found}[{','.join(map(str, value.shape))}]"
    if found != _FED_AS.get(wanted, wanted):
        raise InputError(f"input {described_input(node)}: {shape} was given: convert it to {wanted} first")
    sizes = list(node.shape or ())
    fits = len(sizes) == value.ndim and all(
        not isinstance(size, int) or size == have for size, have in zip(sizes, value.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"input {described_input(node)}: {shape} was given, and only sizes with a name may change: give an input "
            "of this shape, or name that size in dynamic_shapes and export again"
        )


def refuse_call(nodes: Sequence[NodeArg], given: int, unknown: Sequence[str]) -> NoReturn:
    """Raise InputError for too many or too few values; unknown: keywords that are no input of the graph."""
    takes = f"the graph takes {len(nodes)}: {', '.join(map(described_input, nodes)) or 'none'}"
    if not unknown:
        raise InputError(f"{given} input{'' if given == 1 else 's'} given; {takes}")
    name = unknown[0]
    near = difflib.get_close_matches(name, [node.name for node in nodes], n=1)
    hint = f"{name!r}: did you mean {near[0]!r}?" if near else f"no input is called {name!r}"
    raise InputError(f"{hint}; {takes}")


def _dtype(node: NodeArg) -> str:
    inner = node.type.removeprefix("tensor(").removesuffix(")")
    return _NAMES.get(inner, np.dtype(inner).name if inner in np.sctypeDict else inner)


@contextlib.contextmanager
def denormals_flushed() -> Iterator[None]:
    """Inside the block, the calling thread counts denormals as zero; where the processor cannot, nothing changes."""
    with denormals_kept():
        torch.set_flush_denormal(True)
        yield


@contextlib.contextmanager
def denormals_kept() -> Iterator[None]:
    """After the block, the calling thread treats denormals as it did before."""
    # 1e-39 is a denormal: this product is 0 only where they are flushed. torch has a switch for that, and no way to
    # ask.
    before = bool(_SMALL[0] * _SMALL[1] == 0)
    with undone(lambda: torch.set_flush_denormal(before)):
        yield


def open_repeated(
    model: str | bytes,
    providers: Sequence[Provider] | None,
    options: SessionOptions | None = None,
    flush_denormals: bool = True,
) -> InferenceSession:
    """A session of onnxruntime. The caller's own options are taken as they are, also for denormals.

    Raises InputError where onnxruntime cannot load the model.
    """
    if options is None:
        options = quiet_options()
        if flush_denormals:
            options.add_session_config_entry(_POOL_OPTION, "1")
    # The first session of a process that flushes denormals sets the thread that opens it, for good.
    with denormals_kept():
        try:
            return open_session(model, providers, options)
        except InputError:
            raise
        except Exception as error:
            words = " ".join(str(error)[:2000].split())[:500]
            raise InputError(f"{model_name(model)}: onnxruntime cannot load it: {words}") from error


class BoundCall:
    """Call it without arguments: it runs the graph on the values that the bound tensors and arrays have then.

    Returns what the session returns. The values are views of onnxruntime's own memory, written anew by the next call.
    """

    def __init__(
        self,
        session: InferenceSession,
        feed: Mapping[str, torch.Tensor | Array],
        structured: Callable[[list[Output]], Any],
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """during: a context manager that each run is made in."""
        self._session, self._structured, self._during = session, structured, during
        self._binding = session.io_binding()
        self._held = dict(feed)  # onnxruntime keeps addresses, not arrays
        for name, value in feed.items():
            self._bind(name, value)
        for node in session.get_outputs():
            self._binding.bind_output(node.name)

    def _bind(self, name: str, value: torch.Tensor | Array) -> None:
        contiguous = value.is_contiguous() if isinstance(value, torch.Tensor) else value.flags["C_CONTIGUOUS"]
        if not contiguous:
            raise InputError(f"input {name!r} is not contiguous in memory: bind {name}.contiguous(), and fill that")
        if isinstance(value, torch.Tensor):
            device, dtype = value.device, _numpy_dtype(value)
            self._binding.bind_input(
                name, device.type, device.index or 0, dtype, list(value.shape), value.detach().data_ptr()
            )
        else:
            self._binding.bind_input(name, "cpu", 0, value.dtype, list(value.shape), value.ctypes.data)

    def __call__(self) -> Any:
        try:
            with self._during():
                self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise run_error(error) from error
        return self._structured([np.asarray(value.numpy()) for value in self._binding.get_outputs()])


class CachedGraph:
    """A file in onnxruntime. inputs: their declared shapes by name. states: the names of those that are states."""

    def __init__(self, path: Path, providers: Sequence[Provider] | None = None) -> None:
        self._session = open_repeated(str(path), providers)
        self.name = path.name
        nodes = self._session.get_inputs()
        self.inputs: dict[str, list[Any]] = {node.name: node.shape for node in nodes}
        self._dtypes = {node.name: getattr(torch, _dtype(node), None) for node in nodes}
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
            with denormals_flushed():
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
    """What onnxruntime asks for: the dtype of an empty tensor as an array, wherever the tensor itself is."""
    return value.new_empty(0, device="cpu").detach().numpy().dtype


def _tensor(value: OrtValue) -> torch.Tensor:
    found: Any = value_of(value) if value.device_name() == "cpu" else value.numpy()
    return found if isinstance(found, torch.Tensor) else torch.from_numpy(found)
