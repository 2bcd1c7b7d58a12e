"""`Runtime`: what a program that runs ONNX files offers, so that graphs can be compared with eager in it.

The plainest is here: onnx.reference, ONNX in NumPy. It is slow, and there wherever onnx is.

Also the arrays that runtimes take and give, and the limit on how long one run may take. NumPy has no bfloat16, and
onnxruntime's Python API takes and gives NumPy arrays only. `OrtValue` is the way around: an input is made from the 16
bits of each number as uint16 with the ONNX type stated beside them, and an output is read from its memory. To the
caller an input is float32 and an output a bfloat16 tensor.
"""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.limits import TimeLimit, limited

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator
    from onnxruntime import OrtValue

Array: TypeAlias = npt.NDArray[np.generic]  # of any dtype
# One output of a run. A tensor: bfloat16, which NumPy lacks. A list: ONNX's sequence. None: an optional that is empty.
Output: TypeAlias = Array | torch.Tensor | list[Array] | None
# An execution provider of onnxruntime: its name, or its name and its options.
Provider: TypeAlias = str | tuple[str, Mapping[str, object]]
DEFAULT_SECONDS = 120.0  # for one run of a graph, on any machine: far more than the models of the tests need
BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
BFLOAT16_TYPE = "tensor(bfloat16)"  # onnxruntime's name for it


class LoadedGraph(Protocol):
    """A graph in a runtime, ready to run."""

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        """The outputs of these names, or all of them (None), in order.

        feed: the inputs by name, with the dtypes that the graph declares; bfloat16 as float32. Names that the runtime
        does not know are ignored where it removes inputs that no node reads. A bfloat16 output is a torch tensor.
        seconds: how long the run may take, None for no limit.

        Raises RunError where the runtime refuses the input; with `stopped` set where it reached the limit.
        """


class Runtime(ABC):
    """A program that runs ONNX files, for comparisons. To add one, write a subclass.

    An entry point of the group "onnxpatch.runtimes" names the subclass, which is made without arguments.

    name: as `runtime=` has it. distribution: what pip installs, for messages. takes_providers: whether `providers=` is
    meant for it.
    """

    name: ClassVar[str]
    distribution: ClassVar[str]
    takes_providers: ClassVar[bool] = False

    @abstractmethod
    def available(self) -> bool:
        """Whether it can be imported here."""

    @abstractmethod
    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        """A file (str, its path) or a model in memory (bytes), ready to run. Any exception counts as a refusal.

        providers: None unless `takes_providers`, and for the runtime's own default.
        """

    def check_available(self) -> None:
        """Raises InputError, which says what to install, where the runtime is missing."""
        if not self.available():
            raise InputError(f"{self.name} is not installed: pip install {self.distribution}, or runtime='reference'")


def stopped(seconds: float | None) -> RunError:
    """The error of a run that reached its limit."""
    return RunError(
        f"the graph was stopped after {seconds:g} s, the limit for one run: it may have a loop that never ends; "
        "max_seconds= (--max-seconds) sets another limit",
        stopped=True,
    )


def importable(module: str) -> bool:
    """Whether a module can be imported; it is imported."""
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def as_array(value: object) -> Array:
    """A tensor, array or number as the NumPy array that a runtime takes or gives for it.

    Complex tensors become pairs of reals, [..., 2], as in ONNX. bfloat16 and float8, which NumPy lacks, become float32.
    """
    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        return array if array.dtype.kind in "fiubcOSU" else array.astype("float32")
    value = value.detach().cpu()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    if value.dtype == torch.bfloat16 or (value.is_floating_point() and value.element_size() == 1):
        value = value.float()
    return value.resolve_neg().numpy()


def checked_limit(seconds: float | None) -> float | None:
    """`max_seconds` as a float; None for no limit (None or infinity). Raises InputError if it is not above 0."""
    if seconds is None or seconds == math.inf:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"max_seconds={seconds!r}: give the seconds that one run of the graph may take, or None")
    return float(seconds)


def value_of(value: OrtValue) -> Output:
    """What onnxruntime gave, as a NumPy array, bfloat16 as a torch tensor; None for an optional without a value."""
    if not value.has_value():
        return None
    if not value.is_tensor() or value.element_type() != BFLOAT16:
        return value.numpy()
    shape = value.shape()
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=torch.bfloat16)
    # .numpy() raises for bfloat16. The memory is the OrtValue's: it is cloned before the OrtValue goes.
    memory = (ctypes.c_int16 * count).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=torch.int16).clone().view(torch.bfloat16).reshape(shape)


# ------------------------------------------------------------------ onnx.reference
class _OnnxReference(Runtime):
    """onnx.reference.ReferenceEvaluator."""

    name = "reference"
    distribution = "onnx"

    def available(self) -> bool:
        return True

    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        from onnx.reference import ReferenceEvaluator

        return _InReference(ReferenceEvaluator(model))


class _InReference:
    """Its runs are interrupted by an alarm at their limit, which works in the main thread only."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        self._evaluator = evaluator
        types = zip(evaluator.input_names, evaluator.input_types, strict=True)
        self._bfloat16 = {name for name, type_ in types if type_.tensor_type.elem_type == BFLOAT16}

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        values = {name: _to_bfloat16(a) if name in self._bfloat16 else a for name, a in feed.items()}
        try:
            with limited(seconds):
                return list(self._evaluator.run(names, values))
        except TimeLimit:
            raise stopped(seconds) from None
        except Exception as error:
            raise RunError(f"{type(error).__name__}: {' '.join(str(error)[:10_000].split())[:500]}") from error


def _to_bfloat16(array: Array) -> Array:
    """The float32 that stands for bfloat16, as the ml_dtypes.bfloat16 that onnx.reference takes."""
    import onnx

    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(BFLOAT16))


REFERENCE = _OnnxReference()
