"""NaN out of finite inputs: means of nothing, rows masked whole, zero over zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
COLUMNS = ({1: "n"},)


def wide(*tried: int) -> list[tuple[Tensor]]:
    return [(floats(2, n, seed=n),) for n in tried]


@devious(lambda: wide(8, 4, 3, 5, 12), COLUMNS)
def mean_of_the_tail(x: Tensor) -> Tensor:
    return x[:, 4:].mean(1)


@devious(lambda: wide(6, 1, 2, 9), COLUMNS)
def spread(x: Tensor) -> Tensor:
    return x.std(1)


@devious(lambda: wide(6, 1, 2, 9), COLUMNS)
def spread_above_zero(x: Tensor) -> Tensor:
    return x.var(1).relu()


def masks() -> list[tuple[Tensor, Tensor]]:
    some, none = torch.tensor([[True, True, False]] * 2), torch.tensor([[True, False, True], [False, False, False]])
    return [(floats(2, 3), some), (floats(2, 3), none), (floats(2, 3), torch.zeros_like(some))]


@devious(masks)
def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, -torch.inf).softmax(-1)


@devious(masks)
def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(1) / mask.sum(1)


@devious(masks)
def masked_largest(x: Tensor, mask: Tensor) -> Tensor:
    return (x.masked_fill(~mask, 0) / mask.sum(1, keepdim=True)).amax(1)


@devious(lambda: [(x, m.long()) for x, m in masks()])
def masked_by_numbers(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask == 0, -torch.inf).log_softmax(-1)


@devious(lambda: [(x, m.float()) for x, m in masks()])
def masked_by_floats(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum(1) / mask.sum(1)


@devious(lambda: [(floats(2, 1, 3, 4), m[:, None, None]) for _, m in masks()])
def masked_attention(x: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class Padded(nn.Module):
    """Attention over rows that may be padding from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=padding)[0]


devious(lambda: [(floats(2, 3, 4), ~m) for _, m in masks()])(Padded)


@devious(lambda: [(floats(2, 3),), (torch.zeros(2, 3),)])
def share_of_the_largest(x: Tensor) -> Tensor:
    return (x / x.abs().amax(1, keepdim=True)).amax(1)


@devious(sizes(5, 2, 1, 3), ROWS)
def largest_of_the_rest(x: Tensor) -> Tensor:
    return torch.cat([x[2:].sum(0) / x[2:].shape[0], x.amax(0)]).amax(0)
