"""Arguments that ONNX wants as constants, read off a size that never changes: `F.layer_norm(x, x.shape[-1:])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.symbolic import function_name, static_number, traced_from_sizes

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
    known = static_number(argument) if _is_size(argument) else None
    return argument if known is None else known
