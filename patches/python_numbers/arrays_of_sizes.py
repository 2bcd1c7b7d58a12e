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

from onnxpatch import Proof, When, patch
from onnxpatch.formulas.symbolic import Array, numpy_on_tensors, symbolic
from onnxpatch.patching.proof import computing

_NAMES = """
    abs absolute add all amax amin any arange arccos arcsin arctan arctan2 argmax argmin argsort around array
    array_split asarray atleast_1d atleast_2d average bartlett bitwise_and bitwise_or blackman broadcast_to ceil
    clip column_stack concatenate copy cos cosh count_nonzero cross cumprod cumsum deg2rad degrees diag diagonal
    diff divide dot dstack empty_like equal exp exp2 expand_dims expm1 eye flip fliplr flipud float_power floor
    floor_divide fmax fmin fmod full full_like greater greater_equal hamming hanning heaviside hstack hypot identity
    indices inner isfinite kaiser kron less less_equal linspace log log10 log1p log2 logical_and logical_not
    logical_or logical_xor matmul max maximum mean median meshgrid min minimum mod moveaxis multiply nan_to_num ndim
    negative nonzero not_equal ones ones_like outer pad positive power prod rad2deg radians ravel reciprocal
    remainder repeat reshape rint roll rot90 round sign sin sinc sinh sort split sqrt square squeeze stack std
    subtract sum swapaxes take tan tanh tensordot tile trace transpose tri tril triu true_divide trunc var vstack
    where zeros zeros_like
"""
_MEETING = [f"__{side}{word}__" for word in ("add", "sub", "mul", "truediv") for side in ("", "r")]
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "ceil": lambda x: torch.sym_float(math.ceil(x)),
    "floor": lambda x: torch.sym_float(math.floor(x)),
    "maximum": torch.sym_max,
    "minimum": torch.sym_min,
}


def _sized(value: object) -> bool:
    """Whether a value is a size, what was computed from one, one of torch's arrays, or a list that has one in it."""
    if isinstance(value, list | tuple):
        return any(map(_sized, value))
    return isinstance(value, Array) or symbolic(value) or (isinstance(value, Tensor) and not value.dim())


def _concerned(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    first = args[0] if args else None
    if function.__name__ in _MEETING:  # under trace a size is a tensor, and what an array makes with one an array
        return isinstance(args[1], Tensor) and not symbolic(args[1])
    if function.__name__ == "from_numpy":  # in place of counts as an array, `symbolic-items` gives a tensor
        return isinstance(first, Array | Tensor)
    if function.__name__ == "dtype":
        return isinstance(first, np.dtype) or (isinstance(first, type) and issubclass(first, np.generic))
    return _sized((*args, *kwargs.values()))


def _longer(x: Tensor) -> Tensor:
    """The rows with as many of 1 and 2 in turn behind them as half of their length."""
    half: Any = np.floor(x.shape[1] / 2).astype(int)
    return torch.cat([x, torch.from_numpy(np.tile(np.array([1, 2], np.float32), half)[None, :half])], 1)


@patch(
    *(f"numpy.{name}" for name in _NAMES.split()),
    *(f"torch._numpy.ndarray.{name}" for name in _MEETING),
    "torch.from_numpy",
    "torch._numpy._dtypes.dtype",
    name="arrays-of-sizes",
    why="np.arange(x.shape[1]) keeps the length of the example: a graph has NumPy's arrays as constants",
    link="https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html",
    when=When(("dynamo", "trace"), calls=_concerned, by_name=True),
    proof=Proof(
        lambda: computing(_longer),
        lambda: [(torch.randn(1, n),) for n in (6, 3, 11, 1)],
        fails=("dynamo", "trace"),
        reason="shape|astype",
        unchanged="fixed sizes",
    ),
)
def arrays_of_sizes(original: Any, *args: Any, **kwargs: Any) -> object:
    """Calls torch's function of the same name. A result of no axes is a number, and what meets a tensor is a tensor."""
    name = original.__name__
    if name in _MEETING:
        return getattr(args[0].tensor, name)(args[1])
    if name == "dtype":  # torch's arrays know NumPy's dtypes by name alone
        return original(np.dtype(args[0]).name)
    if name == "from_numpy":
        return getattr(args[0], "tensor", args[0])
    # Of numbers alone, the result is no tensor: it may be a size again.
    if name in _OF_NUMBERS and all(isinstance(one, int | float | torch.SymInt | torch.SymFloat) for one in args):
        return _number(_OF_NUMBERS[name](*args))
    made = _OTHERWISE.get(name, getattr(numpy_on_tensors, name))(*args, **kwargs)
    return _number(made.tensor) if isinstance(made, Array) and not made.ndim else made


def _number(found: Any) -> Any:
    """With the method `astype`, which NumPy's numbers have."""

    def astype(dtype: Any, *_: object, **__: object) -> Any:
        if isinstance(found, Tensor):
            return numpy_on_tensors.asarray(found).astype(np.dtype(dtype).name).tensor
        return (torch.sym_int if np.issubdtype(dtype, np.integer) else torch.sym_float)(found)

    vars(found)["astype"] = astype
    return found


def _eye(rows: Any, columns: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    # torch's own writes into a diagonal.
    rows, columns = (numpy_on_tensors.arange(size) for size in (rows, rows if columns is None else columns))
    return (rows[:, None] + k == columns).astype(dtype)


def _tile(tiled: Any, times: Any) -> Any:
    # torch's own takes no number.
    return numpy_on_tensors.tile(tiled, times if isinstance(times, list | tuple) else (times,))


_OTHERWISE = {"eye": _eye, "tile": _tile}
