"""Floor division, which the TorchScript exporter rounds towards zero: `-7 // 2`, `-(-n // 2)`; divmod()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import exporting, op
from onnxpatch.decisions.ask import of_the_model
from onnxpatch.formulas.elementary import floor_quotient, floor_rest, fractional
from onnxpatch.formulas.symbolic import divides_negative, missing_to, never_negative, symbolic


def _in_place(halves: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    halves //= -4
    rows.floor_divide_(0.3)
    return halves, rows


def _quotients(x: Tensor) -> tuple[Tensor, ...]:
    whole = (x * 10).long()
    halves = -(-x.shape[1] // 2)
    return (
        x // 0.3,
        x / 0 // (x * 0),
        whole // 3,
        whole // whole.abs().clamp(min=2),
        x[:, :halves],
        7 // (whole.abs() + 1),
        whole // 2.5,
        whole.double() // 0.3,
        *_in_place(whole.clone(), x.clone()),
    )


def _may_be_negative(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a quotient may be negative. For a size that is never negative, both roundings agree."""
    if len(args) < 2:
        return False
    if exporting() == "dynamo":  # it rounds whole numbers down by itself
        fraction = any(map(fractional, args))
        return (fraction or function is Tensor.__rfloordiv__) and not any(map(_is_symbol, args))
    # Most floor divisions of a trace are of sizes, which need no more nodes than the exporter writes.
    sized = isinstance(args[0], Tensor) and args[0].dim() == 0 and not fractional(args[0])
    return not sized or function is Tensor.__rfloordiv__ or fractional(args[1]) or not never_negative(args[0])


@op(
    "floor_divide",
    "Tensor.__floordiv__",
    "Tensor.__rfloordiv__",
    name="floor-division",
    why="x // 2 of negative numbers, and -(-n // 2), are rounded towards zero in the graph; "
    "6 // 0.1 is 60 there, and 59 in eager",
    reason="relative error|flags differ",
    link="https://github.com/pytorch/pytorch/issues/44692",
    calls=_may_be_negative,
    fails=("trace",),
    tries=lambda: [(torch.randn(b, n),) for b, n in ((2, 5), (3, 9), (1, 4))],
    case=_quotients,
    unchanged=lambda x: x[:, : x.shape[1] // 2],
    # Under dynamo `-(-n // 2)` divides a SymInt, which is that patch's.
    beside=("floor-division-sizes",),
)
def floor_division(original: Callable[..., Tensor], input: Any, other: Any) -> object:
    """Ints: (a - a mod b) / b, an exact quotient. Floats: `floor_quotient`, which rounds as Python does."""
    if original.__name__ == "__rfloordiv__":
        dtype = None if isinstance(other, float) else input.dtype
        input, other = torch.as_tensor(other, dtype=dtype, device=input.device), input
    if fractional(input) or fractional(other):
        return floor_quotient(torch.as_tensor(input), other)
    # The exporters write torch.remainder with the sign of the divisor, as eager does, so the difference divides
    # exactly.
    return torch.floor_divide(input - torch.remainder(input, other), other)


def _is_symbol(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


def _rests(x: Tensor) -> tuple[Tensor, ...]:
    parts = x.clone()
    parts[1:].remainder_(0.5)
    return parts, x % 0.7, torch.remainder(x, -0.3), x.remainder(x.abs() + 0.1), (x * 10).long() % 2.5


@op(
    "remainder",
    "__mod__",
    name="rest-of-floats",
    why="x % 0.7 of multiples of 0.7 is x - 0.7 * floor(x / 0.7) in the graph: 0 for 0.7, or the other way round",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("trace",),
    tries=lambda n: torch.arange(-3.0, n - 3.0) * 0.7,
    sizes=(20, 31, 1),
    case=_rests,
    unchanged=lambda x: x.long() % 3,
)
def rest(original: object, input: Any, other: Any) -> Any:
    """The exact rest of the division rounded towards zero, moved to the divisor's side of zero."""
    if not isinstance(input, Tensor) or input.dim() == 0 or not (fractional(input) or fractional(other)):
        return NotImplemented
    dtype = torch.result_type(input, other)
    return floor_rest(input.to(dtype), torch.as_tensor(other, device=input.device).to(dtype))


def _common(size: Any, by: int) -> Any:
    """`size & by`: what a power of two leaves, without the zeros of the number."""
    if by < 0:
        return size - _common(size, ~by)
    if not by & (by + 1):
        return size % (by + 1)
    whole = 2 ** by.bit_length()
    return size % whole - _common(size, whole - 1 - by)


def _of_bits(name: str, asked: Callable[[Any], Any], form: Callable[[Any, int], Any]) -> None:
    if hasattr(torch.SymInt, name.removeprefix("SymInt.")):
        op(
            name,
            why="'int' object has no attribute 'dtype': the exporter has no form of n >> 1, n & 3 and n ^ 3 of a size",
            reason="has no attribute|not an allowed operator",
            link="https://github.com/pytorch/pytorch/blob/main/torch/onnx/_internal/exporter/_core.py",
            exporters=("dynamo",),
            tries=lambda b, n: torch.randn(b, n),
            case=lambda x: functional.pad(x, (0, asked(x.shape[1]))),
            unchanged=lambda x: x[:, : x.shape[1] // 2],
            to=lambda size, by: form(size, by) if isinstance(by, int) else NotImplemented,
        )


# Quotients, products and rests by powers of two.
_of_bits("SymInt.__rshift__", lambda n: n >> 1, lambda size, by: size // 2**by)
_of_bits("SymInt.__lshift__", lambda n: n << 2, lambda size, by: size * 2**by)
_of_bits("SymInt.__rlshift__", lambda n: 3 << n, lambda size, by: by * 2**size)
_of_bits("SymInt.__and__", lambda n: (n & 5) + (n & -4), _common)
_of_bits("SymInt.__rand__", lambda n: 6 & n, _common)
_of_bits("SymInt.__or__", lambda n: n | 5, lambda size, by: size + by - _common(size, by))
_of_bits("SymInt.__ror__", lambda n: 5 | n, lambda size, by: size + by - _common(size, by))
_of_bits("SymInt.__xor__", lambda n: n ^ 5, lambda size, by: size + by - 2 * _common(size, by))
_of_bits("SymInt.__rxor__", lambda n: 5 ^ n, lambda size, by: size + by - 2 * _common(size, by))


def _either_side(x: Tensor, short: bool = True) -> Tensor:
    """Conditions as kornia's resize() to one number asks them, and of two sizes."""
    rows, columns = x.shape[1:]
    asked = [short ^ (columns < rows), (rows > 3) ^ False, (rows > 3) ^ (columns > 5)]
    return x.sum() + torch.stack([torch.full((), one) for one in asked]).float()


@op(
    "SymBool.__xor__",
    "SymBool.__rxor__",
    name="xor-of-conditions",
    why="unsupported operand type(s) for ^: 'bool' and 'SymBool': a condition on sizes has & and |, and no ^",
    reason="unsupported operand",
    link="https://github.com/pytorch/pytorch/blob/main/torch/__init__.py",
    exporters=("dynamo",),
    tries=lambda h, w: torch.randn(1, h, w),
    sizes=((6, 8), (8, 6), (2, 5), (5, 2)),
    case=_either_side,
    unchanged=lambda x: functional.pad(x, (0, x.shape[1] % 2)),
)
def xor_of_conditions(original: object, value: Any, other: Any) -> Any:
    """One of two conditions and not both: without torch's `not equal`, of which the exporter has no form."""
    if isinstance(other, bool):
        return torch.sym_not(value) if other else value
    return (value | other) & torch.sym_not(value & other)


class _Halved(torch.nn.Module):
    """One length cut or padded to the other, half of it on each side; a table's middle."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        missing, first = x.shape[1] - y.shape[1], (12 - x.shape[1]) // 2
        return x + torch.nn.functional.pad(y, (missing // 2, missing - missing // 2)), self.table[first:] * first


@op(
    "SymInt.__floordiv__",
    name="floor-division-sizes",
    why="(m - n) // 2 of sizes is rounded towards zero in the graph, where n is larger than m; so is (16 - n) // 2, of "
    "which torch.export makes 8 + -n // 2",
    reason="relative error",
    link="https://github.com/pytorch/pytorch/issues/44692",
    exporters=("dynamo",),
    # torch's own code divides sizes too, and compares the results: another formula would be another expression there.
    calls=of_the_model,
    # (4, 9): an odd difference below 0, which the two roundings divide differently.
    tries=lambda m, n: (torch.randn(1, m), torch.randn(1, n)),
    sizes=((9, 4), (4, 9), (5, 5), (3, 10)),
    case=_Halved,
    unchanged="fixed sizes",
)
def floor_division_sizes(original: Callable[[Any, Any], Any], value: Any, step: Any) -> object:
    """Subtracts the rest first, so that the division is exact. Sizes that are never negative need none of it."""
    if not isinstance(step, int) or step < 1:
        return NotImplemented
    if never_negative(value) and not divides_negative(original(value, step)):
        return NotImplemented
    return original(value - value % step, step)


def _groups(x: Tensor) -> Tensor:
    """The maximum of each group of four rows, the last group padded, and the first row of each."""
    missing = (4 - x.shape[1] % 4) % 4
    padded = functional.pad(x, (0, 0, 0, missing))
    groups = padded.reshape(x.shape[0], padded.shape[1] // 4, 4, 3).amax(2)
    return groups + x[:, ::4]


@op(
    "SymInt.__mod__",
    name="padded-sizes",
    why="minutes of export, or Constraints violated: sympy cannot tell that h + (k - h % k) % k is a multiple of k",
    link="https://github.com/pytorch/pytorch/issues/136216",
    exporters=("dynamo",),
    leaner=("dynamo",),
    # Groups of 4 leave each rest once, and the last length is shorter than a group.
    tries=lambda batch, length: torch.rand(batch, length, 3),
    sizes=((2, 11), (3, 8), (1, 5), (2, 2)),
    case=_groups,
    unchanged="fixed sizes",
)
def padded_sizes(original: Callable[[Any, Any], Any], value: Any, step: Any) -> object:
    """Writes the padding as `k * ceil(size / k) - size`. If the size is added, it cancels, and sympy knows the rest."""
    if not (step > 1 if isinstance(step, int) else symbolic(step) and never_negative(step)):
        return NotImplemented
    # None where the value is no `step - size % step`: other remainders stay as they are written.
    size = missing_to(value, step)
    return NotImplemented if size is None else (size + (step - 1)) // step * step - size


def _blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of 4, and what is left."""
    blocks, rest = divmod(x.shape[1], 4)
    back, less = divmod(-x.shape[1], 3)
    return x[:, : blocks * 4] * (rest + 1), x.sum(1) * back + less


@op(
    "builtins.divmod",
    name="quotient-and-rest",
    why="unsupported operand type(s) for divmod(): 'Tensor' and 'int', where n is x.shape[0]; under dynamo 'SymInt'",
    reason=r"unsupported operand type\(s\) for divmod\(\)",
    link="https://github.com/pytorch/pytorch/issues/44692",
    tries=lambda n: torch.rand(2, n),
    sizes=(7, 12, 9, 30, 5),
    case=_blocks,
    unchanged="fixed sizes",
    beside=("floor-division", "floor-division-sizes"),
)
def quotient_and_rest(original: Callable[..., Any], x: Any, y: Any) -> Any:
    """(x // y, x % y), which other patches and the exporters write."""
    if not (symbolic(x) or symbolic(y)):
        return NotImplemented
    return x // y, x % y
