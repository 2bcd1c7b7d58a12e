"""Sizes as Python's numbers: int(), float(), len(), range(), torch_int; types and methods of sizes.

Fractions of sizes are computed in double precision, as Python does: `int(n * 0.29)`, `ceil(n / 3)`, `n // 0.7`.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.elementary import floor_quotient, floor_rest, fractional
from onnxpatch.formulas.symbolic import (
    as_float,
    as_tensor,
    function_name,
    one_step,
    static_number,
    symbolic,
    traced_from_sizes,
    truncated,
)

TRACED_LINK = "https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html"
FROZEN = "a size becomes a constant: int(), float(), math.* or torch_int of a shape freezes the traced value"
LINK = "https://github.com/huggingface/transformers/issues/26790"


def _square_grid(tokens: Tensor) -> Tensor:
    """Tokens back to a square image, the side computed from their number."""
    side, same = int(tokens.shape[1] ** 0.5), math.isqrt(tokens.shape[1])
    return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, same).cumsum(-1)


@op(
    "builtins.int",
    "transformers.utils.torch_int",
    "numpy.int64",
    "numpy.int32",
    "math.isqrt",
    name="symbolic-int",
    why=FROZEN,
    reason="cannot be reshaped|static shape",
    link=LINK,
    tries=lambda b, n: torch.randn(b, n, 3),
    # 1369 is 37 * 37: a root that comes out a little below 37 would make 36 of it.
    sizes=((2, 16), (3, 4), (1, 49), (2, 1369)),
    case=_square_grid,
    unchanged="fixed sizes",
)
def symbolic_int(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Keeps `int(size)` and `math.isqrt(size)` symbolic. Anything else goes to Python's own."""
    # int(text, base) and keywords are no conversions of a size.
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        number: Any = args[0]
        return truncated(number**0.5 if original.__name__ == "isqrt" else number)
    return NotImplemented


def _share(x: Tensor) -> Tensor:
    """Every value as a share of the number of rows."""
    return x / float(x.shape[1] // 2 + 1)


@op(
    "builtins.float",
    "transformers.utils.torch_float",
    "numpy.float32",
    "numpy.float64",
    name="symbolic-float",
    why=FROZEN,
    reason="relative error",
    link=LINK,
    tries=lambda n: torch.ones(2, n),
    sizes=(6, 3, 11),
    case=_share,
    unchanged="fixed sizes",
)
def symbolic_float(original: Callable[..., Tensor], *args: object, **kwargs: object) -> object:
    """Keeps `float(size)` symbolic."""
    if len(args) == 1 and not kwargs and symbolic(args[0]):
        return as_float(args[0])
    return NotImplemented


@op(
    "builtins.len",
    name="symbolic-len",
    why="Using len to get tensor shape might cause the trace to be incorrect: the batch of the example stays",
    reason="shape",
    link=LINK,
    fails=("trace",),  # dynamo is right without it, and must stay so
    tries=lambda b, n: torch.ones(b, n),
    sizes=((3, 4), (1, 2), (5, 7)),
    case=lambda x: x + torch.arange(x.shape[1]).repeat(len(x), 1),
    unchanged="fixed sizes",
)
def symbolic_len(original: Callable[[Any], int], value: object) -> object:
    """Keeps `len(tensor)` symbolic."""
    return value.shape[0] if isinstance(value, Tensor) and value.dim() else NotImplemented


def _inputs() -> list[tuple[Tensor]]:
    return [(torch.arange(2.0 * n).reshape(2, n),) for n in (6, 3, 8, 9, 16)]


def _whole(x: Tensor) -> Tensor:
    """Rows that say whether their number is a multiple of 3, and channels that are one of 2."""
    pairs = 1 if (x.shape[0] / 2).is_integer() else 2
    return x * pairs + torch.as_tensor((x.shape[1] / 3).is_integer())


@op(
    "Tensor.is_integer",
    name="size-is-integer",
    why="'Tensor' object has no attribute 'is_integer': under trace a size divided by a number is a tensor",
    reason="is_integer",
    link=TRACED_LINK,
    exporters=("trace",),
    tries=_inputs,
    case=_whole,
    unchanged=lambda x: x * (3 / 2).is_integer(),
)
def size_is_integer(original: Callable[[Tensor], Any], value: Tensor) -> object:
    """Whether a quotient of sizes is whole: a 0-d bool tensor, or a bool where no input changes it."""
    if value.dim():
        return NotImplemented
    known = static_number(value)
    if known is not None:
        return float(known).is_integer()
    return value == value.floor() if value.is_floating_point() else torch.ones_like(value, dtype=torch.bool)


def _doublings(x: Tensor) -> tuple[Tensor, Tensor]:
    """The next power of two of the number of columns, added and padded to."""
    length = 2 ** (x.shape[1] - 1).bit_length()
    return x + length, torch.nn.functional.pad(x, (0, length - x.shape[1]))


@op(
    "Tensor.bit_length",
    "SymInt.bit_length",
    name="size-bit-length",
    why="'Tensor' object has no attribute 'bit_length': under trace a size is a tensor; under dynamo it is fixed",
    reason="bit_length|static shape",
    link=TRACED_LINK,
    tries=_inputs,
    case=_doublings,
    unchanged=lambda x: x * (5).bit_length(),
)
def size_bit_length(original: Callable[[Any], Any], value: Any) -> object:
    """The number of bits of a size: a 0-d int64 tensor, or an int where no input changes it."""
    if isinstance(value, torch.SymInt):
        bits = (as_tensor(value, torch.int64) >= 2 ** torch.arange(63)).sum().item()
        torch._check(bits >= 0)
        torch._check(value <= 2**bits)
        return bits
    if value.dim() or value.is_floating_point():
        return NotImplemented
    known = static_number(value)
    if known is not None:
        return int(known).bit_length()
    # Exact, where a logarithm would be one off next to a power of two.
    return (value.abs() >= 2 ** torch.arange(63)).sum()


class _Cached(torch.nn.Module):
    """A mask for each length, made when the length is met for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[tuple[int, int], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[1], x.shape[0]
        if size not in self.masks:
            self.masks[size] = torch.ones(size).tril()
        return x.mT + self.masks[size]


@op(
    "SymInt.__hash__",
    name="sizes-as-keys",
    why="unhashable type: non-nested SymInt: a dynamic size is no key of a dict, a set or a cache",
    reason="unhashable type",
    link="https://github.com/pytorch/pytorch/blob/main/torch/__init__.py",
    exporters=("dynamo",),
    tries=lambda b, n: torch.ones(b, n),
    sizes=((3, 4), (1, 2), (5, 7)),
    case=_Cached,
    unchanged="fixed sizes",
)
def sizes_as_keys(original: Callable[[torch.SymInt], int], value: torch.SymInt) -> int:
    """The hash of the example's number, with which a fixed key is found: the size is then fixed, and the export tells.

    Of a number from data it is the hash of its expression.
    """
    return hash(value.node.hint if value.node.has_hint() else value.node.expr)


def _logged(x: Tensor) -> Tensor:
    print(f"{x.shape[0]:3d} rows, {x.shape[1] / 2:.1f} pairs, mean {x.mean().item():.3f}, largest {x.max():.2f}")
    return x + 1


@op(
    "SymInt.__format__",
    "SymFloat.__format__",
    "Tensor.__format__",
    name="numbers-as-text",
    why="unsupported format string passed to SymFloat.__format__: a message with a number of the model in it",
    reason="unsupported format string",
    link="https://github.com/pytorch/pytorch/blob/main/torch/__init__.py",
    exporters=("dynamo",),
    tries=lambda b, n: torch.ones(b, n),
    sizes=((3, 4), (1, 2)),
    case=_logged,
    unchanged=lambda x: x * len(f"{3:3d}"),
)
def numbers_as_text(original: Callable[..., str], value: object, spec: str) -> str:
    """The number's expression, or the tensor's shape, in whatever format: no value is known during the export."""
    return f"<tensor of shape {tuple(value.shape)}>" if isinstance(value, Tensor) else str(value)


class _Named(torch.nn.Module):
    """Channels times the weights that are kept under their number."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.nn.ModuleDict({"2": torch.nn.Linear(2, 3), "4": torch.nn.Linear(4, 3)})

    def forward(self, x: Tensor) -> Tensor:
        return self.kept[str(x.shape[1])](x)


@op(
    "Tensor.__repr__",
    name="size-as-text",
    why='KeyError: \'tensor(4)\': str(x.shape[1]) under trace, where a size is a tensor; f"{n}" and "%d" are right',
    reason=r"tensor\(4\)",
    link=TRACED_LINK,
    exporters=("trace",),
    tries=lambda n: torch.randn(n, 4),
    case=_Named,
    unchanged=lambda x: x * len(str(3)),
)
def size_as_text(original: Callable[..., str], value: Tensor, **options: object) -> object:
    """Its number, as an f-string has it."""
    return f"{value}" if not value.dim() and traced_from_sizes(value) else NotImplemented


def _trimmed(x: Tensor, reference: object) -> Tensor:
    """The first rows, as many as another tensor has, or as a number says."""
    many = torch.is_tensor(reference) or isinstance(reference, Tensor)
    return x[:, : reference.size(1) if many else reference]  # type: ignore[attr-defined]


def _trims(x: Tensor) -> Tensor:
    doubled = torch.cat([x, x * 2], 1).softmax(1)
    return _trimmed(doubled, x.shape[1]) + _trimmed(doubled, x)


@op(
    "builtins.isinstance",
    "torch.is_tensor",
    name="types-of-sizes",
    why="Dimension specified as 1 but tensor has no dimensions: `isinstance(length, torch.Tensor)` is true of a size "
    "while the trace exporter runs, and the code takes it for a tensor",
    reason="has no dimensions|out of range",
    link="https://github.com/facebookresearch/demucs/blob/main/demucs/utils.py",
    exporters=("trace",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_trims,
    unchanged=lambda x: x * 2 if isinstance(x, Tensor) else x,
)
def types_of_sizes(original: Callable[..., bool], value: object, classes: object = Tensor) -> bool:
    """Answers as for an int, where a whole number of sizes is compared with torch.Tensor."""
    if type(value) is not Tensor or value.dim() or value.dtype != torch.int64:
        return NotImplemented
    asked = _flat(classes)
    if Tensor not in asked or not symbolic(value):
        return NotImplemented
    return any(one is not Tensor and original(0, one) for one in asked)


def _flat(classes: object) -> tuple[Any, ...]:
    """The classes of a class, a union or a nest of tuples."""
    inner = classes if isinstance(classes, tuple) else typing.get_args(classes)
    return tuple(one for part in inner for one in _flat(part)) if inner else (classes,)


def _frames(x: Tensor, frame: Any = None) -> Tensor:
    """Audio in frames of a given length, or in one."""
    length = x.shape[1]
    frame = frame or length
    return torch.cat([x[:, at : at + frame].softmax(1) for at in range(0, length, frame)], 1)


@op(
    "builtins.range",
    name="whole-range",
    why="range(0, n, n): inferred a static shape, torch.export keeps the length of the example",
    reason="inferred a static shape",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/encodec/modeling_encodec.py",
    fails=("dynamo",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_frames,
    unchanged=lambda x: torch.cat([x[:, at : at + 2] for at in range(0, 4, 2)], 1),
)
def whole_range(original: Callable[..., object], *bounds: Any) -> object:
    """`range(start, start + step, step)` of a dynamic step has one number, `start`."""
    return (bounds[0],) if one_step(bounds) else NotImplemented


_COMPUTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "truediv": torch.true_divide, "div": torch.true_divide,
    "floordiv": floor_quotient, "floor_divide": floor_quotient, "mod": floor_rest, "remainder": floor_rest,
    "pow": torch.pow,
}  # fmt: skip
_ARITHMETIC = {*_COMPUTED, *(f"r{word}" for word in _COMPUTED)}
_DIVISIONS = ("truediv", "rtruediv", "div", "rdiv")


def _shares(x: Tensor) -> tuple[Tensor, ...]:
    """Parts of a length, rounded every way."""
    n = x.shape[1]
    up, down = math.ceil(n * 0.3), int(n * 0.29)
    return x[:, :up], x[:, : down + 1], x.new_zeros(int(n // 0.7)), x.new_ones(int(n / 0.7 + 1)), x * n**-1


def _in_double(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a call computes a fraction from sizes and numbers alone, which float32 would round."""
    name = function_name(function).strip("_")
    if name not in _ARITHMETIC or len(args) != 2 or kwargs or not all(_is_number(one) for one in args):
        return False
    if name == "pow" and isinstance(args[1], int) and args[1] < 0:  # torch refuses it for whole numbers
        return isinstance(args[0], Tensor) and traced_from_sizes(args[0])
    # Whole numbers are exact in int64, and left alone.
    if name not in _DIVISIONS and not any(map(fractional, args)):
        return False
    return _are_from_sizes([one for one in args if isinstance(one, Tensor)])


def _are_from_sizes(tensors: Sequence[Tensor]) -> bool:
    # Data of shape () is no number, `x.sum() / n` keeps its dtype: float64 alone is what eager gives as well.
    return all(one.dtype == torch.float64 or traced_from_sizes(one) for one in tensors) and any(map(symbolic, tensors))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and not value.dim())


@op(
    "torch.*",
    name="double-sizes",
    why="int(n * 0.29) and ceil(n * 0.3) are computed in float32, and come out one off at some sizes; "
    "n ** -1: Integers to negative integer powers are not allowed",
    reason="shape|negative integer powers",
    link="https://github.com/pytorch/pytorch/issues/74459",
    exporters=("trace",),
    calls=_in_double,
    # Sizes at which float32 and float64 round apart: 100 * 0.29 is 28.999… in Python, and 29.0 in float32.
    tries=lambda n: torch.randn(1, n, 2),
    sizes=(8, 7, 14, 20, 50, 57, 58, 100, 200),
    case=_shares,
    unchanged=lambda: torch.nn.Linear(2, 3),
    # This patch computes the fraction; int() and math.ceil of it are theirs.
    beside=("symbolic-int", "symbolic-rounding"),
)
def double_sizes(original: Callable[..., Tensor], *args: object) -> Tensor:
    """Computes in float64, on tensors of shape (1,): the exporter writes numbers of shape () as float32."""
    numbers = [_in_float64(one) for one in args]
    word = function_name(original).strip("_")
    if word not in _COMPUTED:  # `0.3 * n`
        # `__rmul__` gets the size first, whatever the order in the model was.
        word, numbers = word[1:], numbers[::-1]
    return _COMPUTED[word](*numbers).reshape(())


def _in_float64(number: object) -> Tensor:
    return as_float(number).reshape(1) if isinstance(number, Tensor) else torch.tensor([number], dtype=torch.float64)
