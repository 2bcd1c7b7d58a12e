"""Parts of numbers: mantissa and exponent, the next float, common divisors, bits, quotients rounded towards zero."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas import nodes
from onnxpatch.formulas.elementary import cut_off
from onnxpatch.formulas.nodes import Value, Writer
from onnxpatch.patching.proof import integers, pairs


def _magnitudes(n: int) -> Tensor:
    """Powers of two, their neighbours, and 0."""
    powers = torch.pow(2.0, torch.linspace(-20, 20, n).round())
    return torch.cat((powers, -powers * 1.0000001, powers * 0.9999999, torch.zeros(1)))


@op("frexp", why=missing("aten::frexp"), tries=_magnitudes, case=lambda x: (*torch.frexp(x), *x.double().frexp()))
def frexp(input: Tensor) -> torch.return_types.frexp:
    """x as mantissa times two to the power of an exponent, by the largest power of two in it, which is exact.

    Rump, Ogita and Oishi (2008): of q = (2**52 + 1) x in float64, rounded, q - (1 - 2**-53) q is that power.
    Its two numbers are not written: onnxruntime takes the second for 1.
    """
    wide = input.to(torch.float64)
    some = (wide != 0) & torch.isfinite(wide)
    # Only a float64 has numbers for which q is beyond the floats.
    large = wide.abs() > 1 if input.dtype == torch.float64 else None
    wide = wide if large is None else torch.where(large, wide * 2.0**-100, wide)
    grown = wide * 2.0**52 + wide
    power = (grown - (grown - grown * 2.0**-53)).abs()
    # Its root is a float32 of any float32, however small.
    root = torch.sqrt(power).to(torch.float32 if large is None else torch.float64)
    exponent = torch.round(torch.log(root) * (2 / math.log(2))) + 1
    exponent = exponent if large is None else exponent + torch.where(large, 100.0, 0.0)
    exponent = torch.where(some, exponent, torch.zeros_like(exponent)).to(torch.int32)
    return torch.return_types.frexp((torch.where(some, (wide / (2 * power)).to(input.dtype), input), exponent))


def _steps(n: int) -> tuple[Tensor, Tensor]:
    x = torch.cat((_magnitudes(n), 2.0 ** torch.linspace(-149, -95, n).round(), torch.tensor([math.inf, 3e38])))
    return x, x.roll(1)


# By dtype: binary digits, and the exponent of the smallest number.
_DIGITS = {torch.float64: (53, -1074), torch.float32: (24, -149), torch.float16: (11, -24), torch.bfloat16: (8, -133)}


@op(
    "nextafter",
    why=missing("aten::nextafter"),
    tries=_steps,
    case=lambda x, y: (
        torch.nextafter(x, y),
        (x.double() ** 7).nextafter(y.double()),
        torch.nextafter(x.half(), y.half()),
    ),
)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next number towards `other`: what is added is a little more than half of the last digit, and is rounded.

    Rump, Ogita and Boldo (2007); small numbers are multiplied by a power of two first.
    """
    dtype = torch.result_type(input, other)
    digits, least = _DIGITS[dtype]
    wide = dtype if dtype == torch.float64 else torch.float32
    x, y = input.to(wide), other.to(wide)
    # As tensors: torch.export's numbers pass through float32, which has none of their size.
    numbers = 2.0 ** (least + 2 * digits + 2), 2.0 ** (least + digits), torch.finfo(dtype).max
    below, last, most = (torch.tensor(number, dtype=wide) for number in numbers)
    small = x.abs() < below
    grown = torch.where(small, x * 2.0**digits, x)
    half = grown.abs() * 2.0**-digits
    step = torch.maximum(half + half * 2.0 ** (1 - digits), torch.where(small, last, torch.zeros_like(x)))
    found = torch.where(y < x, grown - step, grown + step)
    found = torch.where(small, found * 2.0**-digits, found)
    # From infinity to the largest number.
    found = torch.where(x.abs() == math.inf, x.clamp(-most, most), found)
    return torch.where((x == y) | torch.isnan(y), y, found).to(dtype)


# ------------------------------------------------------------------ whole numbers
def _whole(b: int, n: int) -> tuple[Tensor, Tensor]:
    return integers(b, n) * 6, integers(b, n) * 4


@op("gcd", why=missing("aten::gcd"), tries=_whole)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor, by Euclid, of all elements at once."""
    dtype = torch.result_type(input, other)
    whole = torch.broadcast_tensors(input.to(torch.int64).abs(), other.to(torch.int64).abs())

    @while_loop(lambda x, y: y.max() > 0)
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        done = y == 0  # beside 1 nothing is left: 0 again
        return torch.where(done, x, y), torch.remainder(x, torch.where(done, 1, y))

    return run(*(part.clone() for part in whole))[0].to(dtype)


@op("lcm", why=missing("aten::lcm", "aten::gcd"), tries=_whole, beside=("gcd",))
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple."""
    divisor = torch.gcd(input, other)
    divisor = torch.where(divisor == 0, torch.ones_like(divisor), divisor)  # no clamp: it needs a rewritten file
    product = torch.div(input, divisor, rounding_mode="trunc") * other
    return product.abs()


def _shifts(b: int, n: int) -> tuple[Tensor, Tensor]:
    by = integers(b, n)
    return integers(b, n) * 5, torch.where(by > 6, by * 9, by)


@op("bitwise_right_shift", "Tensor.__rshift__", "bitwise_left_shift", "Tensor.__lshift__",
    why="negative whole numbers shifted to the right are 0; bytes shifted by int16 stay bytes",
    reason="whole numbers or flags differ|division by zero", exporters=("trace",), tries=_shifts,
    case=lambda x, y: (x >> y, x >> 1, x << y, torch.bitwise_right_shift(-9, y), x.byte() << y.short()))  # fmt: skip
def shifted(original: Callable[..., Tensor], input: Tensor | int, other: Tensor | int) -> Tensor:
    """-1 - x of a negative one has the other bits: its shift is the exporter's own."""
    dtype = torch.result_type(input, other)
    if dtype.is_floating_point:
        return NotImplemented
    x, by = torch.as_tensor(input), torch.as_tensor(other)
    x, by = (one if one.dtype == dtype else one.to(dtype) for one in (x, by))
    last, outside = torch.iinfo(dtype).bits - 1, None
    if not isinstance(other, int) or not 0 <= other <= last:
        # By more bits than there are, or by a negative number of them, nothing is left but the sign.
        wide = by.to(torch.int64)  # no runtime compares or chooses int16
        outside = (wide < 0) | (wide > last)
        by = torch.where(outside, torch.full_like(wide, last), wide).to(dtype)
    if dtype == torch.uint8 or "left" in original.__name__ or "lshift" in original.__name__:
        if outside is None:
            return NotImplemented if x is input else original(x, by)
        return torch.where(outside, 0, original(x, by).to(torch.int64)).to(dtype)
    found = original(torch.where(x < 0, -1 - x, x), by)
    return torch.where(x < 0, -1 - found, found)


@op("Tensor.__rrshift__", "Tensor.__rlshift__", name="number-shifted-by-tensors",
    why="-9 >> x is 0: negative whole numbers shifted to the right",
    reason="flags differ|division by zero", exporters=("trace",), tries=_shifts, beside=("bitwise-right-shift",),
    case=lambda x, y: (-9 >> y, 9 << y))  # fmt: skip
def number_shifted(original: Callable[..., Tensor], by: Tensor, number: int) -> Tensor:
    """By torch's functions, which are patched."""
    return _torchs_own(original)(number, by)


def _torchs_own(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function of torch for an operator of Python, such as `__rlshift__`."""
    return torch.bitwise_right_shift if "rshift" in operator.__name__ else torch.bitwise_left_shift


@op("Tensor.__rshift__", "Tensor.__lshift__", name="shifts-by-tensors",
    why=missing("aten::__rshift__", "aten::__lshift__", exporters=("dynamo",)),
    tries=lambda b, n: (integers(b, n) * 5, integers(b, n).abs() % 5),
    case=lambda x, y: (x >> y, x << y, y[..., None] >> torch.arange(3), (y.to(torch.uint8) << 6) | 1))  # fmt: skip
def shifts(original: Callable[..., Tensor], input: Tensor, other: Any) -> Tensor:
    """By torch's functions; bytes as whole numbers, since the exporter's own become signed."""
    wide = input.to(torch.int64) if input.dtype == torch.uint8 else input
    return _torchs_own(original)(wide, other).to(torch.result_type(input, other))


# ------------------------------------------------------------------ quotients, differences
def _quotients(b: int, n: int) -> tuple[Tensor, Tensor]:
    x, y = pairs(b, n)
    return x * 5, torch.where(x == 0, x, y)


@op("div", "divide", name="quotients-cut-off",
    why="0 / 0 cut off is -9.2e18 in place of NaN: the quotient passes through whole numbers",
    reason="non-finite values differ", exporters=("trace",), tries=_quotients,
    case=lambda x, y: torch.div(x, y, rounding_mode="trunc"), unchanged=lambda x, y: torch.div(x, y))  # fmt: skip
def truncated_quotient(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient of floats without what is behind the point."""
    if rounding_mode != "trunc" or not isinstance(input, Tensor):
        return NotImplemented
    if not torch.result_type(input, other).is_floating_point:
        return NotImplemented
    return cut_off(input / other)


def _large(n: int) -> tuple[Tensor, Tensor]:
    """Whole numbers that float32 does not have."""
    return torch.arange(n) * 123456789 - 987654321, torch.arange(n) % 5 + 3


@op("div", "divide", name="quotients-of-whole-numbers",
    why="whole numbers differ from 2**24 on: a quotient of them that is rounded passes through float32",
    reason="whole numbers or flags differ|relative error", exporters=("dynamo",), tries=_large,
    case=lambda x, y: (torch.div(x, y, rounding_mode="trunc"), x.div(-7, rounding_mode="floor")),
    unchanged=lambda x, y: torch.div(x, y))  # fmt: skip
def whole_quotient(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The quotient without its rest."""
    divisor = torch.as_tensor(other) if isinstance(other, int) else other
    if rounding_mode is None or not _all_whole(input, divisor):
        return NotImplemented
    if rounding_mode == "trunc":
        input = input - torch.fmod(input, other)
    return torch.floor_divide(input, other)


def _pairs(b: int, n: int) -> tuple[Tensor, Tensor]:
    return integers(b, n), integers(b, n)


def _all_whole(*operands: Any) -> bool:
    return all(isinstance(x, Tensor) and not x.is_floating_point() and x.dtype != torch.bool for x in operands)


def _sizes(writer: Writer, *values: Value) -> list[Any]:
    """The sizes of what is computed of values that broadcast."""
    shapes = [writer.shape(value) for value in values]
    rank = max(map(len, shapes))
    columns = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return [next((n for n in column if n not in (1, None)), None if None in column else 1) for column in columns]


def _in_one_dtype(x: Any, y: Any) -> list[Tensor]:
    """Two operands as tensors: of flags and whole numbers, as whole numbers. The trace has no form of `mask ^ True`."""
    dtype, device = torch.result_type(x, y), next(one.device for one in (x, y) if isinstance(one, Tensor))
    made = (one if isinstance(one, Tensor) else torch.as_tensor(one, dtype=dtype, device=device) for one in (x, y))
    return [one if one.dtype == dtype else one.to(dtype) for one in made]  # the trace writes a cast to the same


def _bits(of_flags: Callable[..., Tensor], of_whole: Callable[..., Tensor], kind: str = "") -> Callable[..., Tensor]:
    """kind: the node of ONNX, from opset 18 on, that the trace has no form of."""

    def written(writer: Writer, x: Value, y: Value) -> Value:
        return writer.node(kind, x, y, shape=_sizes(writer, x, y))

    def found(x: Any, y: Any) -> Tensor:
        flags = all(isinstance(one, bool) or getattr(one, "dtype", None) == torch.bool for one in (x, y))
        if flags and isinstance(x, Tensor) and isinstance(y, Tensor):
            return NotImplemented  # one node of the exporter's own
        if not flags and not kind and not _all_whole(*(one for one in (x, y) if isinstance(one, Tensor))):
            return NotImplemented
        x, y = _in_one_dtype(x, y)
        if flags:
            return of_flags(x, y)
        if not _all_whole(x, y):
            return NotImplemented
        return nodes.run((of_whole, written), x, y) if kind and nodes.target_opset() >= 18 else of_whole(x, y)

    return found


def _written_bits(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    first, flags, whole = x > 2, x > 2, x.clone()
    first[0] |= y[0] > 2
    flags &= y > 2
    flags ^= y > 3
    whole <<= 2
    whole &= y
    return first, flags, whole


_NOT = "ONNX export does NOT support exporting bitwise OR for non-boolean input values"


op("bitwise_or", "Tensor.__or__", "Tensor.__ror__", why=_NOT, reason="bitwise OR", exporters=("trace",), tries=_pairs,
   case=lambda x, y: (x | y, x | 5, 6 | y, torch.bitwise_or(x, y), x.int() | (y > 0), (x > 0) | 5),
   to=_bits(torch.logical_or, lambda x, y: x + y - torch.bitwise_and(x, y), "BitwiseOr"))  # fmt: skip


op("Tensor.__ior__", "Tensor.__iand__", "Tensor.__ixor__", "Tensor.__ilshift__", "Tensor.__irshift__",
   name="bits-in-place", why=missing("aten::__ior_", "aten::__iand_", exporters=("trace",)), exporters=("trace",),
   tries=_pairs, case=_written_bits,
   to=lambda original, x, y: x.copy_(getattr(operator, original.__name__.replace("__i", "__"))(x, y)))  # fmt: skip


op("bitwise_and", "Tensor.__and__", "Tensor.__rand__", why="mask & True: We don't have an op for aten::bitwise_and",
   reason="have an op", exporters=("trace",), tries=_pairs, case=lambda x, y: (True & (x > 0), x & True),
   to=_bits(torch.logical_and, torch.bitwise_and))  # fmt: skip


op("bitwise_xor", "Tensor.__xor__", "Tensor.__rxor__", why=_NOT.replace("OR", "XOR"), exporters=("trace",),
   reason="bitwise XOR|have an op", tries=_pairs,
   case=lambda x, y: (x ^ y, x ^ 5, 6 ^ y, x.bitwise_xor(y), True ^ (x > 0), (x > 0) ^ y),
   to=_bits(torch.logical_xor, lambda x, y: x + y - 2 * torch.bitwise_and(x, y), "BitwiseXor"))  # fmt: skip


@op("bitwise_not", "Tensor.__invert__", why=_NOT.replace("OR", "Not"), reason="bitwise Not",
    exporters=("trace",), tries=_pairs,
    case=lambda x, y: (~x, torch.bitwise_not(y), y.to(torch.int32).bitwise_not()))  # fmt: skip
def bitwise_not(input: Tensor) -> Tensor:
    """All bits turned: -1 - x."""
    if not _all_whole(input):
        return NotImplemented
    return torch.full_like(input, 255 if input.dtype == torch.uint8 else -1) - input
