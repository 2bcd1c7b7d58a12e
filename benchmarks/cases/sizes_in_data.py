"""Data that sizes something: lengths of padded sequences, counts of repeats, draws.

Every case is judged at sizes that the export never saw, with other data; docs/causes.md says what came of each cause.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.one_function import BOTH, cases_of

LIBRARIES = ("torch",)
case = cases_of(__name__)


def mask_of_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(lengths.max().item())[None] < lengths[:, None]
    return x[:, : mask.shape[1]] * mask[..., None]


def lengths_as_int(x: Tensor, lengths: Tensor) -> Tensor:
    longest = int(lengths.max())
    return x[:, :longest].softmax(1) + torch.arange(longest)[None, :, None]


def lengths_by_max(x: Tensor, lengths: Tensor) -> Tensor:
    return x[:, : max(lengths)].cumsum(1)


def lengths_as_list(x: Tensor, lengths: Tensor) -> Tensor:
    """The mean of each sequence without its padding."""
    return torch.stack([row[:n].mean(0) for row, n in zip(x, lengths.tolist(), strict=True)])


def mask_row_by_row(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.zeros(x.shape[:2])
    for i, n in enumerate(lengths):
        mask[i, :n] = 1
    return x * mask[..., None]


def repeat_by_counts(x: Tensor, counts: Tensor) -> Tensor:
    return x[0].repeat_interleave(counts, dim=0)


def repeat_rows_by_counts(x: Tensor, counts: Tensor) -> Tensor:
    """A length regulator's, token after token."""
    return torch.cat([token.expand(int(n), -1) for token, n in zip(x[0], counts, strict=True)])


def repeat_by_number(x: Tensor, counts: Tensor) -> Tensor:
    return x.repeat(int(counts.sum()), 1, 1).sum(0)


def multinomial(x: Tensor) -> Tensor:
    """One possible draw only, so that it can be compared."""
    certain = F.one_hot(x.argmax(-1), x.shape[-1]).float()
    return torch.multinomial(certain, 1)


def lstm_packed(total: bool) -> nn.Module:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 5, batch_first=True, bidirectional=True)

        def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, (hidden, _) = self.rnn(packed)
            more = {"total_length": x.shape[1]} if total else {}
            out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, **more)
            return out, hidden

    return Packed()


def with_lengths(shortest: int) -> Callable[..., tuple[Tensor, Tensor]]:
    def make(b: int, n: int) -> tuple[Tensor, Tensor]:
        lengths = torch.randint(min(shortest, n), n + 1, (b,))
        return torch.randn(b, n, 4), lengths

    return make


def with_counts(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(1, n, 4), torch.randint(1, 4, (n,))


LENGTHS = ((2, 6), (3, 9), (1, 1), (2, 14))
SIZED = ({0: "b", 1: "n"}, {0: "b"})
COUNTED = ({1: "n"}, {0: "n"})
RAGGED = {
    f"{call.__name__}": case(call, with_lengths(1), LENGTHS, axes=SIZED)
    for call in (mask_of_lengths, lengths_as_int, lengths_by_max, lengths_as_list, mask_row_by_row)
} | {
    f"{call.__name__}": case(call, with_counts, ((5,), (9,), (1,), (12,)), axes=COUNTED)
    for call in (repeat_by_counts, repeat_rows_by_counts, repeat_by_number)
}

CASES: dict[str, Callable[[], Case]] = {
    **RAGGED,
    "multinomial": case(multinomial, sizes=BOTH),
    "lstm_packed": case(lstm_packed(False), with_lengths(1), LENGTHS, axes=SIZED),
    "lstm_packed_total": case(lstm_packed(True), with_lengths(1), LENGTHS, axes=SIZED),
}  # fmt: skip
