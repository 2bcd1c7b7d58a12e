"""Functions of each element: atan2, fmax and fmin, gelu, exp, shrinking."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import Proof, exporting, missing, op, running_model, untraced
from onnxpatch.formulas.elementary import floats, hypot, softplus
from onnxpatch.formulas.nodes import target_opset
from onnxpatch.formulas.symbolic import constant, symbolic, unrecorded
from onnxpatch.patching.proof import numbers


def _grid(batch: int, count: int) -> tuple[Tensor, ...]:
    """Every pair of a few numbers, 0 and a negative 0 among them."""
    numbers = torch.tensor([0.0, 1.0, -1.0, -0.0, 2.5, -0.3])[:count]
    return tuple(one.expand(batch, -1, -1).clone() for one in torch.meshgrid(numbers, numbers, indexing="ij"))


@op(
    "atan2",
    "arctan2",
    name="atan2-origin",
    why="non-finite values differ: atan2(0, 0) is NaN in the graph, and atan2(0, -1) has the wrong sign",
    reason="non-finite values differ|relative error|is invalid",
    link="https://github.com/pytorch/pytorch/issues/51334",
    tries=_grid,
    sizes=((2, 6), (1, 3), (3, 5)),
    case=lambda y, x: (torch.atan2(y, x), torch.atan2(y.int(), x.long()), torch.atan2(y, x.int())),
    unchanged=lambda y, x: torch.atan(y) + x,
)
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of (other, input), in radians from -pi to pi."""
    input, other = floats(input), floats(other)
    # The only place where the quotient says nothing: 0 / 0 is NaN.
    origin = (input == 0) & (other == 0)
    # A quotient by 0 has the sign of the number divided, by a negative 0, too; in the origin it is 0.
    angle = torch.atan(input / torch.where(other == 0, (input == 0).to(other.dtype), other))
    below = (input < 0) | (torch.reciprocal(input) < 0)  # so is a negative zero
    turned = torch.where(below, angle - math.pi, angle + math.pi)
    left = (other < 0) | (origin & (torch.reciprocal(other) < 0))
    # Left of the y axis the arctangent of the quotient is off by half a turn.
    return torch.where(left, turned, angle)


def _extremes(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    holes = torch.where(x > 0.5, torch.nan, x)
    return torch.fmax(holes, y), holes.fmin(y[:, :1]), torch.fmax(x.long(), y.long())


@op(
    "fmax",
    "fmin",
    name="extremes-beside-nan",
    why="No ONNX function found for <OpOverload(op='prims.fmax', overload='default')>; Exporting the operator "
    "'aten::fmax' to ONNX opset version 18 is not supported",
    reason="fmax|fmin",
    link="https://github.com/pytorch/pytorch/issues/126972",
    tries=lambda b, n: (torch.randn(b, n), torch.randn(b, n)),
    case=_extremes,
    unchanged=lambda x, y: torch.maximum(x, y),
)
def extreme(original: Callable[..., Tensor], input: Tensor, other: Tensor) -> Tensor:
    """The one that is a number, else the larger or smaller one."""
    chosen = torch.maximum(input, other) if original.__name__ == "fmax" else torch.minimum(input, other)
    if not chosen.is_floating_point():
        return chosen
    return torch.where(torch.isnan(input), other, torch.where(torch.isnan(other), input, chosen))


_OPSET = 20  # the first with Gelu
_CUBE = 0.044715  # of torch's approximation by tanh


def _gelus(x: Tensor) -> tuple[Tensor, Tensor]:
    """Both forms, each between two other operations."""
    exact = torch.nn.functional.gelu(x + 1) * 2
    return exact, torch.nn.functional.gelu(x - 1, approximate="tanh") * 2


@op(
    "gelu",
    why="five or eight passes over the tensor: the exporters multiply by 0.5 in a place where onnxruntime does not "
    "recognize GELU, and computes each operation by itself",
    link="https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/optimizer/gelu_fusion.cc",
    tries=lambda b: torch.randn(b, 64, 384),
    sizes=(2, 3, 16),
    case=_gelus,
    slower={"dynamo": 1.4, "trace": 1.2},
)
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x (1 + erf(x / sqrt 2)) / 2, or with tanh in place of erf. onnxruntime has a kernel for float32 alone."""
    if input.dtype != torch.float32 or target_opset() >= _OPSET:
        return NotImplemented
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + _CUBE * torch.pow(input, 3))
        return 0.5 * input * (1 + torch.tanh(inner))
    if exporting() == "trace":  # which writes the exact form as below
        return NotImplemented
    return input * (1 + torch.erf(input / math.sqrt(2))) * 0.5


_MOST = 1 << 16  # elements that are written into the file


def _times(time: Tensor) -> Tensor:
    """Sines of a time step, whose angles are so large that the last bit of a frequency matters."""
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(64, dtype=torch.float32) / 64)
    return torch.sin(time[:, None].float() * frequencies * 20000.0)


@op(
    "exp",
    name="constant-exponentials",
    why="relative error 4e-3: the frequencies of a time step are computed in the graph, whose exp rounds otherwise",
    reason="relative error",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/embeddings.py",
    exporters=("dynamo",),
    tries=lambda batch: torch.randint(500, 1000, (batch,)),
    sizes=(3, 5, 1),
    case=_times,
    unchanged=lambda x: torch.exp(x) + torch.exp(x.new_ones(3)).sum(),
)
def constant_exponential(original: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
    """The result as a constant, if it depends on no input and on no weight."""
    # A length that changes makes no constant.
    if not isinstance(tensor, Tensor) or any(map(symbolic, tensor.shape)) or not 0 < tensor.numel() <= _MOST:
        return NotImplemented
    running = running_model()
    if running is None or running.model is None:
        return NotImplemented
    known = constant(tensor, running.model, {})
    if known is None:
        return NotImplemented
    made: Tensor = unrecorded(lambda: original(known))
    return made


@op(
    "nn.functional.softplus",
    why="relative error 0.002: the threshold is left out, beyond which softplus is x",
    reason="relative error",
    exporters=("trace",),
    tries=numbers,
    case=lambda x: functional.softplus(x, 3, 0.2),
)
def thresholded_softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x where beta x is above the threshold."""
    if threshold >= 20:
        return NotImplemented  # no difference in float32
    scaled = input * beta
    return torch.where(scaled > threshold, input, softplus(scaled) / beta)


@op(
    "nn.functional.rrelu",
    "rrelu",
    why=missing("aten::rrelu_with_noise_functional", exporters=("dynamo",)),
    exporters=("dynamo",),
    tries=numbers,
    case=lambda x: (functional.rrelu(x, 0.1, 0.4), torch.rrelu(x), functional.rrelu(x * 2, inplace=True)),
)
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """In eval the slope below 0 is the mean of both."""
    return NotImplemented if training else functional.leaky_relu(input, (lower + upper) / 2, inplace)


# ------------------------------------------------------------------ NaN
def _holes(b: int, n: int) -> Tensor:
    return torch.where(torch.arange(n) % 4 == 3, torch.nan, torch.randn(b, n) * 2)


_NAN = "non-finite values differ: NaN comes out as 0"


op(
    "nn.functional.hardshrink",
    "hardshrink",
    why=_NAN,
    reason="non-finite",
    exporters=("trace",),
    tries=_holes,
    case=lambda x: functional.hardshrink(x, 0.7),
    to=lambda x, lambd=0.5: torch.where(x.abs() <= lambd, torch.zeros_like(x), x),
)


op(
    "nn.functional.softshrink",
    why=_NAN,
    reason="non-finite",
    exporters=("trace",),
    tries=_holes,
    case=lambda x: functional.softshrink(x, 0.7),
    to=lambda x, lambd=0.5: x - x.clamp(-lambd, lambd),
)


def _far_apart(b: int, n: int) -> tuple[Tensor, Tensor]:
    """From 1e-25 to 1e25, and 0, infinities and NaN."""
    some = torch.tensor([0.0, 1e25, -1e-25, math.inf, 3.0, math.nan, -1e-40])
    return some.repeat(b, n)[:, :n], some.repeat_interleave(7).repeat(b, n)[:, :n]


def _hypotenuses(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    found = torch.hypot(x, y)
    return (
        found,
        torch.where(found > 1e-20, 0, found).float() * 1e20,
        torch.where(found < 1e9, found, 0),
        x.clone().hypot_(y[:1]),
    )


op(
    "hypot",
    why=missing("aten::hypot", "prims::hypot"),
    tries=_far_apart,
    sizes=((2, 49), (3, 60), (1, 48)),
    case=_hypotenuses,
    to=hypot,
)


op(
    "heaviside",
    why="aten::heaviside is not supported; 1 of NaN under dynamo, where eager has 0",
    reason="heaviside|relative error",
    tries=_holes,
    case=lambda x: torch.heaviside(x, x[:1] - 1) + torch.heaviside(x.round(), torch.tensor(0.5)),
    to=lambda x, values: torch.where(x == 0, values, (x > 0).to(x.dtype)),
)


op("positive", why=untraced("aten::positive"), tries=numbers, case=lambda x: (+x, x.positive()), to=lambda x: x.clone())


class _Slopes(torch.nn.Module):
    def forward(self, mask: Tensor) -> Tensor:
        places = (mask.cumsum(-1) - 1) * mask
        slopes = torch.tensor([0.25, 0.0625, 0.3])
        return (slopes[..., None].bfloat16() * places[:, None]).to(torch.float32)


@op(
    "mul",
    "__mul__",
    "__rmul__",
    name="bfloat16-times-integers",
    why="Type 'tensor(complex128)' of input parameter of operator (Mul) is invalid: the exporter takes bfloat16 for "
    "it; Could not find an implementation for Mul(14): onnxruntime multiplies no bfloat16 on the CPU",
    link="https://github.com/pytorch/pytorch/issues/129064",
    proof=Proof(
        build=_Slopes,
        inputs=lambda: [(torch.ones(b, n, dtype=torch.int64),) for b, n in ((2, 5), (3, 300), (1, 1))],
        fails=("trace",),
        exporters=("dynamo",),
        reason="complex128",
    ),
)
def times_integers(input: Tensor, other: Tensor) -> Tensor:
    """Multiplies in float32, where the product of two bfloat16 numbers is exact, and rounds once."""
    if not isinstance(other, Tensor) or not isinstance(input, Tensor):
        return NotImplemented
    if torch.bfloat16 not in (input.dtype, other.dtype) or input.is_floating_point() == other.is_floating_point():
        return NotImplemented
    # Whole numbers are rounded to bfloat16 first, as eager promotes them.
    return (input.bfloat16().float() * other.bfloat16().float()).bfloat16()
