"""Calls of torch with a number computed from sizes: arithmetic, also beside data of shape ().

`constant-arguments` reads what ONNX wants as constants off a size that never changes: `F.layer_norm(x, x.shape[-1:])`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import function_name, known_size, symbolic, traced_from_sizes

_OPERATORS = {
    "add", "sub", "subtract", "mul", "multiply", "div", "divide", "truediv", "true_divide", "floordiv", "floor_divide",
    "mod", "remainder", "pow",
}  # fmt: skip
_OPERATORS |= {f"r{word}" for word in _OPERATORS}
FROZEN = "Converting a tensor to a Python number might cause the trace to be incorrect: .item() of sizes freezes them"
LINK = "https://github.com/pytorch/pytorch/issues/21576"
_WORDS = ("mul", "sub", "floordiv", "mod", "pow")
ARITHMETIC = {f"__{side}{word}__" for word in _WORDS for side in ("", "r", "i")} | {
    f"{name}{end}"
    for name in ("mul", "multiply", "sub", "subtract", "rsub", "floor_divide", "remainder", "pow", "clamp", "clip")
    for end in ("", "_")
}


def _relative(x: Tensor) -> tuple[Tensor, ...]:
    """Distances between rows and columns of two resolutions, scaled as in decomposed relative positions."""
    ratio = x.shape[2] / x.shape[1]
    rows = torch.arange(x.shape[1])
    return x.sum() + rows * ratio, rows % x.shape[2], rows ** x.shape[0], x.clamp(0.5, ratio)


def between(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call under torch.export combines a tensor with a symbolic number."""
    if function_name(function) not in ARITHMETIC or "out" in kwargs:
        return False
    given = (*args, *kwargs.values())
    return any(symbolic(value) for value in given) and any(isinstance(value, Tensor) for value in given)


@op(
    "torch.*",
    name="symbolic-scalars",
    why="float() argument must be a string or a real number, not 'SymbolicTensor'; and integers ** size are floats",
    reason=r"float\(\) argument must be|SymbolicTensor",
    link="https://github.com/pytorch/pytorch/issues/153115",
    exporters=("dynamo",),
    calls=between,
    plain=False,
    # Ratios above 1 and below.
    tries=lambda b, h, w: torch.rand(b, h, w),
    sizes=((2, 4, 6), (3, 7, 5), (1, 2, 9)),
    case=_relative,
    unchanged="fixed sizes",
)
def symbolic_scalars(original: Callable[..., Tensor], *args: object, **kwargs: object) -> Tensor:
    """Makes the call with a 0-d tensor for the number. Like a number, it does not promote the other operand's dtype."""
    name = function_name(original)
    both = name.startswith("cl")  # clamp takes two numbers or two tensors, not one of each
    data = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    tensors = [_tensor(value, data, both and place > 0) for place, value in enumerate(args)]
    if name.strip("_").endswith("pow") and len(tensors) == 2:  # ONNX's Pow returns the dtype of its base
        common = torch.result_type(*tensors)
        tensors = [value.to(common) for value in tensors]
    return original(*tensors, **{key: _tensor(value, data, both) for key, value in kwargs.items()})


def _tensor(value: Any, data: Tensor, also_numbers: bool) -> Any:
    if symbolic(value) or (also_numbers and isinstance(value, int | float)):
        whole = isinstance(value, int | torch.SymInt)
        dtype = torch.int64 if whole else torch.get_default_dtype()
        # Of two tensors of shape () the wider dtype is the result's; a number has none.
        return torch.scalar_tensor(value, dtype=dtype if data.dim() else torch.result_type(data, 1 if whole else 1.0))
    return value


class _Means(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 2)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        n = x.shape[0]
        # The layer takes float32 alone.
        mean = self.linear((x.sum() / (n * 0.5)).reshape(1))
        return mean, math.sqrt(n) * x.amax(), x.amin() - n / 3, ids * (n / 2)


def _widened(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a fraction of sizes gives the data beside it another dtype than a Python number does."""
    if function_name(function).strip("_") not in _OPERATORS or len(args) != 2:
        return False
    tensors = [one for one in args if isinstance(one, Tensor)]
    wide = [one.dtype == torch.float64 and not one.dim() for one in tensors]
    if len(tensors) != 2 or not any(wide):
        return False
    number, data = tensors if wide[0] and symbolic(tensors[0]) else tensors[::-1]
    if torch.result_type(number, data) == torch.result_type(data, 1.0) or not symbolic(number):
        return False
    return not symbolic(data)


@op(
    "torch.*",
    name="numbers-with-data",
    why="x.sum() / (n * 0.5): a fraction of sizes is a float64 tensor under trace, and makes float64 of a float32 sum; "
    "a Linear behind it stops with: mat1 and mat2 must have the same dtype, but got Double and Float",
    reason="same dtype|float64",
    link="https://github.com/pytorch/pytorch/issues/74459",
    exporters=("trace",),
    calls=_widened,
    plain=False,
    tries=lambda n: (torch.randn(n, 3), torch.arange(1, n)),
    sizes=(4, 7, 2),
    case=_Means,
    # Without them there are no fractions in float64.
    unchanged=lambda x, ids: x.sum() / x.shape[0] + ids * x.shape[1],
    beside=("double-sizes", "symbolic-sqrt"),
)
def numbers_with_data(original: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    """Rounds the number to the dtype in which eager computes."""
    if left.dtype == torch.float64 and not left.dim() and symbolic(left):
        return original(left.to(torch.result_type(right, 1.0)), right)
    return original(left, right.to(torch.result_type(left, 1.0)))


# Functions of which the exporter wants a constant; others take a size as it is.
_CONSTANT = {
    "layer_norm", "rms_norm", "group_norm", "local_response_norm", "unfold", "fold", "pixel_shuffle", "channel_shuffle",
    "pixel_unshuffle", "chunk", "tensor_split", "stft", "istft", "one_hot", "zeros", "new_zeros",
}  # fmt: skip
_ENDS = ("pool1d", "pool2d", "pool3d", "conv1d", "conv2d", "conv3d")


def _channels(x: Tensor) -> tuple[Tensor, ...]:
    """Norms and windows whose arguments are read off the number of channels."""
    normed = functional.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2])
    places = torch.arange(x.shape[1])
    weight = x.new_zeros([x.shape[1], x.shape[1], 1])  # diffusers' 1-D networks make kernels so
    weight[places, places] = 2.0
    sampled = functional.conv1d(x.flatten(2), weight)
    return normed, sampled, functional.pixel_unshuffle(x, x.shape[1] // 4), functional.max_pool2d(x, x.size(1) // 4)


def _of_sizes(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a function that needs constants is given a 0-d tensor that was computed from sizes."""
    name = function_name(function)
    if name not in _CONSTANT and not name.endswith(_ENDS):
        return False
    return any(_is_size(value) for argument in (*args, *kwargs.values()) for value in _each(argument))


def _each(argument: object) -> tuple[object, ...]:
    return tuple(argument) if isinstance(argument, tuple | list) else (argument,)


def _is_size(value: object) -> bool:
    return isinstance(value, Tensor) and not value.dim() and traced_from_sizes(value)


@op(
    "torch.*",
    name="constant-arguments",
    why="because it is not constant. Please try to make things (e.g. kernel sizes) static if possible; Expected node "
    "type 'onnx::Constant' for argument 'downscale_factor'",
    reason="not constant|onnx::Constant",
    link="https://github.com/pytorch/pytorch/issues/47887",
    exporters=("trace",),
    calls=_of_sizes,
    plain=False,
    tries=lambda b, h, w: torch.randn(b, 8, h, w),
    sizes=((2, 6, 4), (1, 10, 2), (3, 2, 12)),
    case=_channels,
    unchanged=lambda x: functional.max_pool2d(x, 2),
)
def constant_arguments(original: Callable[..., object], *args: object, **kwargs: object) -> object:
    """Calls the function with a number for each size that is the same for every input, and with the other sizes."""
    given = tuple(_numbers(one) for one in args)
    named = {key: _numbers(one) for key, one in kwargs.items()}
    return original(*given, **named)


def _numbers(argument: Any) -> object:
    if isinstance(argument, tuple | list):
        # A list for a tuple too: torch takes either for sizes.
        return [_numbers(one) for one in argument]
    return known_size(argument) if _is_size(argument) else argument
