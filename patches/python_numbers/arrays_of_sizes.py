"""NumPy's arrays whose shape or values are sizes: torch's own NumPy, on tensors, makes them in the graph.

`torch.from_numpy(np.arange(x.shape[1]))`, a mask by `np.triu(np.ones((1, n, n)))`, a table of sines, `np.ceil(n / 3)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxpatch import Proof, When, op, patch
from onnxpatch.formulas.proof_cases import computing
from onnxpatch.formulas.symbolic import Array, numpy_on_tensors, symbolic

FROZEN = "np.arange(x.shape[1]) keeps the length of the example: a graph has NumPy's arrays as constants"
LINK = "https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html"
_SIZES = (6, 3, 11, 1)
_NAMES = """
    abs absolute add amax amin arange argsort array asarray broadcast_to ceil clip concatenate copy cos cumprod cumsum
    diag divide dot equal exp expand_dims eye flip floor floor_divide full full_like greater hamming hanning hstack less
    linspace log log10 log2 logical_and logical_not logical_or matmul max maximum mean meshgrid min minimum mod multiply
    not_equal ones ones_like outer power repeat reshape roll round sin sqrt square squeeze stack subtract sum tanh
    transpose tri tril triu vstack where zeros zeros_like
"""

_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "ceil": lambda x: torch.sym_float(math.ceil(x)),
    "floor": lambda x: torch.sym_float(math.floor(x)),
    "maximum": torch.sym_max,
    "minimum": torch.sym_min,
}


def _sized(value: object) -> bool:
    """Whether a value is a size, one of torch's arrays, or a list that has one in it."""
    if isinstance(value, list | tuple):
        return any(map(_sized, value))
    return isinstance(value, Array) or symbolic(value)


def _table(x: Tensor) -> Tensor:
    """Sines of half the length, as many as rows; and attention that sees what is before."""
    n = x.shape[1]
    angles = np.arange(n, dtype=np.float32)[:, None] * np.sqrt(np.arange(n // 2 + 1))
    rows = np.stack([np.sin(angles), np.cos(angles)]).sum(0).astype(np.float32)
    hidden = np.triu(np.ones((n, n)), k=1).astype("uint8")
    return (x * torch.from_numpy(rows).sum(1)).expand(n, -1).masked_fill(torch.from_numpy(hidden) == 1, -9)


@op(
    *(f"numpy.{name}" for name in _NAMES.split()),
    name="arrays-of-sizes",
    why=FROZEN,
    reason="broadcast|static shape|no attribute|relative error|shape",
    link=LINK,
    calls=lambda function, args, kwargs: _sized((*args, *kwargs.values())),
    tries=lambda n: torch.randn(1, n),
    sizes=_SIZES,
    case=lambda x: torch.cat([x, torch.from_numpy(np.ones((1, x.shape[1] // 2)))], 1),
    unchanged="fixed sizes",
    beside=("tensors-of-arrays", "dtypes-of-arrays"),
)
def arrays_of_sizes(original: Any, *args: Any, **kwargs: Any) -> object:
    """Calls torch's function of the same name. A result of no axes is a number."""
    name = original.__name__
    # Of numbers alone, the result is no tensor: it may be a size again.
    if name in _OF_NUMBERS and all(isinstance(one, int | float | torch.SymInt | torch.SymFloat) for one in args):
        return _OF_NUMBERS[name](*args)
    made = _eye(*args, **kwargs) if name == "eye" else getattr(numpy_on_tensors, name)(*args, **kwargs)
    return made.tensor if isinstance(made, Array) and not made.ndim else made


def _eye(rows: Any, columns: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    # torch's own writes into a diagonal.
    rows, columns = (numpy_on_tensors.arange(size) for size in (rows, rows if columns is None else columns))
    return (rows[:, None] + k == columns).astype(dtype)


@op(
    "torch._numpy._dtypes.dtype",
    name="dtypes-of-arrays",
    why="'getset_descriptor' object has no attribute '_scalar_type': torch's arrays take NumPy's dtypes by name alone",
    reason="_scalar_type|static shape|broadcast|relative error|shape",
    link=LINK,
    tries=lambda n: torch.randn(1, n),
    sizes=_SIZES,
    case=_table,
    fails=("trace",),  # torch.export has them where it reads the source
    beside=("arrays-of-sizes", "tensors-of-arrays"),
)
def dtypes_of_arrays(original: Any, arg: Any) -> Any:
    """The same dtype, by its name."""
    of_numpy = isinstance(arg, np.dtype) or (isinstance(arg, type) and issubclass(arg, np.generic))
    return original(np.dtype(arg).name) if of_numpy else NotImplemented


@patch(
    "torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.asarray",
    *(f"torch._numpy.ndarray.__{side}{word}__" for word in ("add", "sub", "mul", "truediv") for side in ("", "r")),
    name="tensors-of-arrays",
    why="expected np.ndarray (got ndarray): torch.from_numpy of an array of sizes; the product of one and a tensor",
    link=LINK,
    when=When(("dynamo", "trace"), calls=lambda function, args, kwargs: _with_torch(function, *args), by_name=True),
    proof=Proof(
        lambda: computing(_table), lambda: [(torch.randn(1, n),) for n in _SIZES], fails=("trace",),
        reason="ndarray|static shape|broadcast|relative error|shape", beside=("arrays-of-sizes", "dtypes-of-arrays"),
    ),
)  # fmt: skip
def tensors_of_arrays(original: Any, array: Any, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """The tensor that the array is, or what it makes of another."""
    made: Tensor = getattr(array.tensor, original.__name__)(*args) if args else array.tensor
    return made if dtype is None else made.to(dtype)


def _with_torch(function: Any, array: object = None, *others: object) -> bool:
    # Under trace a size is a tensor, and the result with one an array.
    data = isinstance(others[0], Tensor) and not symbolic(others[0]) if others else "__" not in function.__name__
    return isinstance(array, Array) and data
