"""`F.pad`: by amounts of an `if` that pads to a multiple, by negative ones, in mode circular, in a `try`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.decisions.ask import calling_frame
from onnxpatch.decisions.if_rules.computed_padding import amounts_here
from onnxpatch.decisions.if_rules.noop_padding import zeros_where_it_raises
from onnxpatch.formulas.symbolic import counted, missing_to, symbolic


def _landmarks(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The mean of each of four groups, as Nystromformer has it: padded in front where they do not divide."""
    n = x.shape[1]
    remainder = n % 4
    if remainder > 0:
        padding = 4 - (n % 4)
        x = functional.pad(x, (0, 0, padding, 0), value=0)
        if mask is not None:
            mask = functional.pad(mask, (padding, 0), value=False)
    if mask is not None:
        x = x * mask[..., None]
    means = x.reshape(x.shape[0], 4, -1, 3).mean(2)
    return x[:, -n:] @ means.transpose(1, 2)


def _lengthened(x: Tensor, more: Any) -> Tensor:
    return functional.pad(x, (*(0, 0) * (x.dim() - 1), 0, more))


class _Stepped(torch.nn.Module):
    """Multiples by other tests: of an attribute behind `not`, of two sizes; by functions, of several tensors."""

    step, masked = 4, None

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        groups, turned = _landmarks(x, mask), x.transpose(1, 2)
        if not x.shape[1] % self.step == 0:  # noqa: SIM201 - as models write it
            x = functional.pad(x, (0, 0, 0, self.step - x.shape[1] % self.step))
        if x.shape[1] % 3 != 0:
            sides = (0, 0, 0, 3 - x.shape[1] % 3)
            x = functional.pad(x, sides)
        if x.shape[2] % 2 != 0:
            sides = (0, 2 - x.shape[2] % 2, 0, 0)
            x = functional.pad(x, sides)
        (rows, columns), count = turned.shape[1:], mask.shape[1]
        if self.masked or rows % 3 != 0 or columns % 4 != 0:
            missing = (4 - columns % 4) % 4
            turned = functional.pad(turned, (0, missing, 0, 0), "replicate")
        if mask.size(1) % 2 == 1:
            mask = self.to_multiple(mask, 2)
        to_fives = functools.partial(_lengthened, more=5 - count % 5)
        if count % 5 > 0:
            x, turned = map(to_fives, (x, turned))
            mask = _lengthened(mask, 5 - count % 5)
        return groups, x, turned, mask

    def to_multiple(self, mask: Tensor, step: int) -> Tensor:
        return functional.pad(mask, (0, step - mask.shape[1] % step))


@op(
    "pad",
    name="padding-in-branches",
    why="`if n % k > 0: x = F.pad(x, (0, k - n % k))` is traced at one size, and pads by k where nothing is missing",
    reason="relative error|shape|Reshape|onnxruntime fails",
    link="https://github.com/lucidrains/nystrom-attention",
    tries=lambda n: (torch.rand(2, n, 3), torch.rand(2, n) > 0.3),
    sizes=(7, 8, 3, 1, 20, 11),
    case=_Stepped,
    unchanged="fixed sizes",
    beside=("size-shortcut", "size-shortcut-trace"),
)
def padding_in_branches(
    original: Callable[..., Tensor], input: Tensor, pad: Sequence[object], *args: object, **kwargs: object
) -> object:
    """Pads by nothing where the test of the `if` around the call is false. By `n % 2` in a form that cancels: n is even
    then, which sympy cannot tell, and expressions of halves of halves grow with every one."""
    frame = calling_frame(1)
    amounts = amounts_here(pad, frame) if frame is not None else None
    evened = [*map(_to_even, pad if amounts is None else amounts)]
    if amounts is None and all(map(operator.is_, evened, pad)):
        return NotImplemented
    return original(input, evened, *args, **kwargs)


def _to_even(amount: Any) -> Any:
    size = missing_to(amount, 2, itself=True) if isinstance(amount, torch.SymInt) else None
    return amount if size is None else (size + 1) // 2 * 2 - size


@op(
    "nn.functional.pad",
    name="negative-pads",
    why="Pad: invalid mode with zero effective input extent: a negative pad of another kind than constant",
    reason="Pad|relative error|shape|effective",
    case=lambda x: (functional.pad(x, (-4, 5, 0, 0), "replicate"), functional.pad(x, (1, -2, -1, 1), "replicate")),
    tries=lambda b, h: torch.randn(b, 2, h + 4, 4),
    unchanged=lambda x: functional.pad(x, (1, 1, 0, 2), "replicate"),
)
def negative_pads(
    original: Callable[..., Tensor], input: Tensor, pad: Any, mode: str = "constant", value: Any = None
) -> Tensor:
    """What is cut off is cut off first."""
    amounts = list(pad)
    # Of "reflect" what is mirrored may be what is cut off.
    if mode != "replicate" or not all(isinstance(n, int) for n in amounts) or min(amounts) >= 0:
        return NotImplemented
    # Eager reads the whole axis, also where all of it is cut off.
    for axis, places, last in _places(input, amounts):
        input = input.index_select(axis, torch.minimum(places.clamp(min=0), last))
    return input


def _places(x: Tensor, pad: Sequence[Any]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(axis, which element of it stands at each place of the padded one, its last) for each axis, the last first."""
    for at in range(0, len(pad), 2):
        axis = x.dim() - 1 - at // 2
        places = torch.arange(x.shape[axis] + pad[at] + pad[at + 1], device=x.device) - pad[at]
        yield axis, places, counted(x.shape[axis], x) - 1


@op(
    "nn.functional.pad",
    name="circular-padding",
    why="Unexpected mode of 3: a Pad of mode wrap, which ONNX has from opset 19 on, of an empty batch",
    reason="Unexpected mode",
    exporters=("dynamo",),
    case=lambda x: functional.pad(x, (2, 1, 0, 1), "circular"),
    tries=lambda b, h: torch.randn(b, 2, h + 4, 4),
    sizes=((2, 5), (0, 5), (1, 3)),
    unchanged=lambda x: functional.pad(x, (1, 1, 0, 2), "reflect"),
)
def circular(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """The end of each axis before it, and its start behind it."""
    if mode != "circular" or not all(isinstance(n, int) and n >= 0 for n in pad):
        return NotImplemented
    for at in range(0, len(pad), 2):
        axis, before, behind = input.dim() - 1 - at // 2, pad[at], pad[at + 1]
        ends = (before, input.narrow(axis, input.shape[axis] - before, before)), (behind, input.narrow(axis, 0, behind))
        first, last = ([part] if count else [] for count, part in ends)
        input = torch.cat([*first, input, *last], axis)
    return input


def _filled(x: Tensor, step: int, mode: str = "constant") -> Tensor:
    return functional.pad(x, (0, -x.shape[3] % step, 0, -x.shape[2] % step), mode)


def _tried(x: Tensor) -> Tensor:
    try:
        return _filled(x, 4, "reflect")
    except RuntimeError:
        return _filled(x, 4)


@op(
    "nn.functional.pad",
    name="padding-that-is-tried",
    why='`try: F.pad(x, p, "reflect")`, and with zeros in `except`: p is too much for smaller sizes than the example',
    reason="reflect|relative error|Pad",
    link="https://github.com/chaiNNer-org/spandrel",
    case=_tried,
    tries=lambda h, w: torch.randn(2, 3, h, w),
    sizes=((5, 6), (1, 1), (2, 7), (3, 3), (4, 1)),
    unchanged=lambda x: functional.pad(x, (1, 1, 0, 2), "reflect"),
)
def padding_that_is_tried(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """Mirrored where every amount is less than its size; elsewhere what is behind an edge is 0."""
    sizes = any(map(symbolic, (*pad, *input.shape)))
    if mode != "reflect" or not sizes or not zeros_where_it_raises(calling_frame(1)):
        return NotImplemented
    keeps = mirrors = torch.ones((), dtype=torch.bool, device=input.device)
    for axis, places, last in _places(input, pad):
        mirrors = mirrors & ((places >= -last) & (places <= 2 * last)).all()
        keeps = keeps & ((places >= 0) & (places <= last)).reshape(-1, *(1,) * (input.dim() - 1 - axis))
        input = input.index_select(axis, (last - (last - places.abs()).abs()).clamp(min=0))
    return torch.where(keeps | mirrors, input, 0 if value is None else value)
