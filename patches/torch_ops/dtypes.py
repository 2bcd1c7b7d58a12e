"""Operands of two dtypes, and whole numbers where floats come out: an operator of ONNX promotes nothing.

The exporters cast the operands of +, -, * and /. Many other functions they forget: `torch.log(lengths)`, a stack of
ints and floats, `softmax(dtype=torch.float32)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.calls import listed
from onnxpatch.formulas.elementary import floats, fractional
from onnxpatch.formulas.symbolic import function_name

# Those that are float for whole numbers, too. Where an exporter casts one itself, the file stays as it is.
_FLOATS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "deg2rad", "digamma", "erf", "erfc", "erfinv",
    "exp", "exp2", "expm1", "i0", "lgamma", "log", "log10", "log1p", "log2", "log_softmax", "logit", "logsumexp",
    "mean", "mvlgamma", "nanmean", "polygamma", "rad2deg", "reciprocal", "rsqrt", "sigmoid", "sin", "sinc", "sinh",
    "softmax", "sqrt", "tan", "tanh",
)  # fmt: skip


def _lengths(n: Tensor) -> tuple[Tensor, ...]:
    one = torch.log(n), n.sin(), torch.special.expit(n), (n - 2).exp(), n.to(torch.int32).sqrt(), torch.logit(n == 3)
    along = n.softmax(0, dtype=torch.float32), torch.mean(n, 0, dtype=torch.float32), torch.logsumexp(n, 0)
    return *one, *along, torch.nn.functional.log_softmax(n, 0, dtype=torch.float64)


@op(
    *_FLOATS,
    "special.expit",
    "special.psi",
    name="floats-of-whole-numbers",
    why="Type 'tensor(int64)' of input parameter of operator (Sin) is invalid; the mean of ints as float32 is rounded",
    reason="is invalid|relative error|eager has float",
    link="https://github.com/pytorch/pytorch/issues/143222",
    tries=lambda n: torch.arange(n) + 1,
    case=_lengths,
    unchanged=lambda n: (n * 0.5).sin(),
)
def of_floats(original: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Of floats: of the dtype that the call names, or else of the default one."""
    place = next((i for i, arg in enumerate(args) if isinstance(arg, Tensor)), None)
    if place is None or args[place].is_floating_point() or args[place].is_complex():
        return NotImplemented
    named = (one for one in (*args, *kwargs.values()) if isinstance(one, torch.dtype))
    cast = args[place].to(next(named, torch.get_default_dtype()))
    return original(*args[:place], cast, *args[place + 1 :], **kwargs)


@op(
    "xlogy",
    "pow",
    name="powers-of-two-dtypes",
    why="Type 'tensor(int64)' of input parameter of operator (Log) is invalid; a power of ints by floats is int64",
    reason="is invalid|eager has float",
    link="https://github.com/pytorch/pytorch/issues/143222",
    tries=lambda n: (torch.linspace(0.5, 3, n), torch.arange(n) + 1),
    case=lambda x, n: (torch.xlogy(x, n), torch.xlogy(n, n), torch.pow(n, x), n.pow(x)),
    unchanged=lambda x, n: torch.pow(x, x),
    beside=("composites",),
)
def promoted(original: Callable[..., Tensor], input: Any, other: Any) -> Tensor:
    """Of one dtype, a float one but for powers of whole numbers by whole numbers."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return NotImplemented
    whole = function_name(original) == "pow"
    if input.dtype == other.dtype and (whole or input.is_floating_point()):
        return NotImplemented
    common = torch.result_type(input, other)
    if not whole and not common.is_floating_point:
        common = torch.get_default_dtype()
    return original(input.to(common), other.to(common))


def _stacked(x: Tensor) -> tuple[Tensor, ...]:
    whole = torch.arange(x.shape[0])
    return torch.stack([x, whole]), torch.stack((x > 0, whole), dim=-1)


@op(
    "stack",
    name="stacks-of-two-dtypes",
    why="Type parameter (T) of Optype (Concat) bound to different types (tensor(float) and tensor(int64))",
    reason="bound to different types",
    link="https://github.com/pytorch/pytorch/issues/143222",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n),
    case=_stacked,
    unchanged=lambda x: torch.stack([x, x * 2]),
)
def stacked(original: Callable[..., Tensor], tensors: Sequence[Tensor], *rest: Any, **more: Any) -> Tensor:
    """Of the dtype that eager promotes them to."""
    alike = _of_one_dtype(tensors)
    return original(alike, *rest, **more) if alike else NotImplemented


def _of_one_dtype(tensors: Sequence[Any]) -> list[Tensor] | None:
    """The tensors in the dtype that eager promotes them to; None where they have one already."""
    dtypes = {one.dtype for one in tensors if isinstance(one, Tensor)}
    if len(dtypes) < 2:
        return None
    common = functools.reduce(torch.promote_types, dtypes)
    return [one.to(common) for one in tensors]


@op(
    "einsum",
    "functional.einsum",
    name="einsum-of-two-dtypes",
    why="Type parameter (T) of Optype (Einsum) bound to different types (tensor(float) and tensor(int64))",
    reason="different types|Type Error",
    link="https://onnx.ai/onnx/operators/onnx__Einsum.html",
    tries=lambda b, n, m: (torch.randn(b, n), torch.arange(b * m).reshape(b, m)),
    sizes=((2, 3, 4), (5, 1, 7)),
    case=lambda x, counts: torch.einsum("bi,bj->bij", x, counts),
    unchanged=lambda x, counts: torch.einsum("bi,bj->bij", x, x),
)
def einsum_of_two_dtypes(original: Callable[..., Tensor], equation: str, *operands: object) -> Tensor:
    """The operands in the dtype that eager promotes them to, where it takes them at all."""
    tensors = listed(operands)
    alike = _of_one_dtype(tensors) if isinstance(equation, str) and len(tensors) == 2 else None
    return original(equation, *alike) if alike else NotImplemented


@op(
    "rsub",
    "__rsub__",
    name="number-minus-integers",
    why="Cannot find a compatible OpOverload for aten.sub with the provided arguments",
    reason="aten.sub",
    link="https://github.com/pytorch/pytorch/issues/144382",
    exporters=("dynamo",),
    tries=lambda n: torch.arange(n) - 3,
    case=lambda x: (1.0 - x, torch.rsub(x, 2.5), 1 - x, 0.5 - (x > 0).to(torch.int32)),
)
def number_minus(input: Tensor, other: object, *, alpha: object = 1) -> Tensor:
    """Writes `2.5 - ints` as -ints + 2.5, which the exporter promotes correctly."""
    if input.is_floating_point() or not isinstance(other, float) or alpha != 1:
        return NotImplemented
    return floats(input).neg() + other


_LONG_NAMES = {
    "divide": "div", "true_divide": "div", "subtract": "sub", "multiply": "mul", "greater": "gt", "less": "lt",
    "greater_equal": "ge", "less_equal": "le", "not_equal": "ne",
}  # fmt: skip


def _two_dtypes(x: Tensor) -> tuple[Tensor, ...]:
    whole = torch.arange(x.shape[-1]) + 1
    mixed = torch.divide(x, whole), whole.subtract(x), torch.multiply(x, whole), torch.true_divide(whole, x)
    return *mixed, torch.greater(whole, x), x.less_equal(whole)


@op(
    *_LONG_NAMES,
    name="long-names-of-arithmetic",
    why="Type parameter (T) of Optype (Div) bound to different types: of torch.divide the exporter casts no operand",
    reason="bound to different types",
    link="https://github.com/pytorch/pytorch/blob/main/torch/onnx/_internal/fx/passes/type_promotion.py",
    exporters=("dynamo",),
    tries=lambda b, n: torch.randn(b, n),
    case=_two_dtypes,
    unchanged=lambda x: x / (torch.arange(x.shape[-1]) + 1),
)
def arithmetic(original: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """By the short name, whose operands the exporter casts to one dtype."""
    return getattr(torch, _LONG_NAMES[function_name(original)])(*args, **kwargs)


def _limited(x: Tensor) -> tuple[Tensor, ...]:
    limits = (x.clamp(-2.5, 3.5), torch.clamp(x, min=0.5), x.clamp(max=1), torch.clip(x, 0, 2.5))
    return *limits, x.clamp_min(0.5), torch.clamp_max(x, 1.5), x.clamp(torch.tensor(-1.5), torch.tensor(2.5))


@op(
    "clamp",
    "clip",
    "clamp_min",
    "clamp_max",
    name="integers-clamped-by-floats",
    why="whole numbers limited by 3.5 come out as whole numbers, limited by 3",
    reason="int64, eager has float32",
    link="https://github.com/pytorch/pytorch/issues/143222",
    exporters=("trace",),
    tries=lambda n: torch.arange(n) - 4,
    sizes=(9, 12, 1),
    case=_limited,
)
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamps ints by floats in floats, as torch does."""
    if input.is_floating_point() or not any(map(fractional, (min, max))):
        return NotImplemented
    return floats(input).clamp(min, max)


@op(
    "clamp",
    "clip",
    "clamp_",
    "clip_",
    name="limits-of-two-kinds",
    why="Cannot find a compatible OpOverload for aten.clamp with the provided arguments: of x.clamp(0, 0.5)",
    reason="aten.clamp",
    link="https://github.com/pytorch/pytorch/issues/143222",
    exporters=("dynamo",),
    tries=lambda b, n: torch.randn(b, n),
    case=lambda x: (x.clamp(0, 0.5), torch.clip(x, -0.5, 1), (x * 3).long().clamp(-1, 1.5), (x * 2).clamp_(0, 0.5)),
    unchanged=lambda x: x.clamp(-0.5, 0.5),
)
def limits(original: Callable[..., Tensor], input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Both limits as floats, where one is a whole number and the other is not."""
    if {type(min), type(max)} != {int, float}:
        return NotImplemented
    return original(floats(input), float(min), float(max))


_SMALL = (torch.uint8, torch.int8, torch.int16, torch.int32)


op(
    "cumsum",
    name="running-sums-of-small-numbers",
    why="whole numbers differ: the running sum of bytes or int32 wraps around; eager's is int64",
    reason="whole numbers or flags differ|CumSum",
    exporters=("trace",),
    tries=lambda b, n: torch.arange(b * n).reshape(b, n) + 90,
    case=lambda x: (x.to(torch.uint8).cumsum(1), torch.cumsum(x.int() << 24, dim=0)),
    unchanged=lambda x: x.cumsum(1),
    to=lambda original, input, *args, **kwargs: (
        original(input.to(torch.int64), *args, **kwargs) if input.dtype in _SMALL else NotImplemented
    ),
)


_either, _both = lambda x, y: x | y, lambda x, y: x & y
_FLAGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": _either, "maximum": _either, "fmax": _either, "minimum": _both, "fmin": _both,
    "ge": lambda x, y: x | ~y, "le": lambda x, y: ~x | y,
}  # fmt: skip


def _of_flags(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    return len(args) > 1 and all(isinstance(one, Tensor) and one.dtype == torch.bool for one in args[:2])


def _flags(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x > 0, x[:1] < -1
    return a + b, torch.maximum(a, b), a.minimum(b), a >= b, a.le(b)


op(
    *_FLAGS,
    "__add__",
    "__ge__",
    "__le__",
    name="sum-of-flags",
    why="Type 'tensor(bool)' of input parameter of operator (Add, Max) is invalid: of mask + other_mask",
    reason="is invalid",
    link="https://onnx.ai/onnx/operators/onnx__Add.html",
    calls=_of_flags,
    tries=lambda b, n: torch.randn(b, n),
    case=_flags,
    unchanged=lambda x: (x > 0) + 1,
    to=lambda original, input, other, **more: (
        NotImplemented if more else _FLAGS[function_name(original).strip("_")](input, other)
    ),
)
