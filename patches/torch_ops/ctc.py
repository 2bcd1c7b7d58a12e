"""Connectionist temporal classification (CTC): the loss of a text over steps that each hold a letter or a blank."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op, while_loop
from onnxpatch.formulas.elementary import reduced

_NEVER = -1e30  # the logarithm of a probability that is 0; of -inf the differences would be NaN


def _texts(n: int, c: int) -> tuple[Tensor, Tensor]:
    """Logarithms of probabilities of 9 steps, and a text for each: equal letters in a row, a blank, an empty one."""
    text = torch.tensor([1, 1, 2, 0, 3]).roll(n).repeat(n, 1)
    return torch.randn(9, n, c + 3).log_softmax(-1), text


def _aligned(x: Tensor, text: Tensor) -> tuple[Tensor, ...]:
    steps, letters = torch.full_like(text[:, 0], 9), torch.arange(text.shape[0]).clamp(max=5)
    loss = functional.ctc_loss
    some = loss(x, text, steps, letters), loss(x, text, steps - 2, letters, reduction="none", zero_infinity=True)
    return *some, loss(x, text, steps - letters, letters, 3, "sum"), loss(x[:5], text, steps - 4, letters)


@op(
    "nn.functional.ctc_loss", why=missing("aten::ctc_loss"), tries=_texts, sizes=((3, 4), (6, 7), (1, 2)), case=_aligned
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """How unlikely each text is, over all ways to spread it over the steps. targets: (batch, longest text)."""
    if log_probs.dim() != 3 or targets.dim() != 2:
        return NotImplemented
    steps, letters = (torch.as_tensor(n, dtype=torch.int64).reshape(-1, 1) for n in (input_lengths, target_lengths))
    text = torch.where(torch.arange(targets.shape[1]) < letters, targets.to(torch.int64), blank)
    # A blank before each letter, and behind the last one.
    places = torch.stack((torch.full_like(text, blank), text), -1).flatten(1)
    places = torch.cat((places, torch.full_like(places[:, :1], blank)), 1)
    # A letter may follow the one before it at once, unless they are equal.
    apart = torch.cat((places[:, :2] != places[:, :2], places[:, 2:] != places[:, :-2]), 1)
    logs, never = log_probs.to(torch.float64), torch.full_like(places[:, :2], _NEVER, dtype=torch.float64)
    before = torch.where(torch.arange(places.shape[1]) > 0, _NEVER, torch.zeros_like(places, dtype=torch.float64))

    total = torch.ones_like(logs[:, 0, 0]).sum()

    @while_loop(lambda k, found: k < total)
    def run(k: Tensor, found: Tensor) -> tuple[Tensor, ...]:
        one, two = torch.cat((never[:, :1], found[:, :-1]), 1), torch.cat((never, found[:, :-2]), 1)
        ways = torch.stack((found, one, torch.where(apart, two, _NEVER)))
        letter = logs.index_select(0, k.reshape(1)).squeeze(0).gather(1, places)
        return k + 1, torch.where(k < steps, (_sum(ways) + letter).clamp(min=_NEVER), found)

    found = run(torch.zeros((), dtype=torch.int64), before)[1]
    # The last letter, or the blank behind it.
    ends = found.gather(1, torch.cat((2 * letters, (2 * letters - 1).clamp(min=0)), 1))
    ends = torch.where((letters == 0) & (torch.arange(2) == 1), _NEVER, ends)
    loss = -_sum(ends.transpose(0, 1))
    loss = torch.where(loss > -_NEVER / 2, 0.0 if zero_infinity else math.inf, loss).to(log_probs.dtype)
    if reduction != "mean":
        return reduced(loss, reduction)
    return (loss / letters.reshape(-1).clamp(min=1).to(loss.dtype)).mean()


def _sum(ways: Tensor) -> Tensor:
    """The logarithm of the sum over the first axis."""
    most = ways.amax(0)
    return torch.log(torch.exp(ways - most).sum(0)) + most
