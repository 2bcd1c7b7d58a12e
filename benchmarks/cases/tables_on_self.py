"""Tables that a model keeps on itself and makes again, or longer, for another size.

Every case is judged at sizes that the export never saw, with other data; docs/causes.md says what came of each cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Case
from benchmarks.one_function import both_examples, cases_of

LIBRARIES = ("torch",)
TOKENS = ((2, 6, 4), (3, 9, 4), (1, 1, 4), (2, 14, 4))
case = cases_of(__name__)


def sincos(height: Any, width: Any, base: int = 4) -> Tensor:
    rows = torch.arange(height, dtype=torch.float32) / (height / base)
    columns = torch.arange(width, dtype=torch.float32) / (width / base)
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 0).reshape(2, -1)
    omega = 1.0 / 100 ** (torch.arange(2, dtype=torch.float32) / 2)
    angles = grid[..., None] * omega
    return torch.cat([angles.sin(), angles.cos()], -1).movedim(0, 1).reshape(1, -1, 8)


class TableAgain(nn.Module):
    """The table as stored at the native size, made again elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.height = self.width = 4
        self.project = nn.Conv2d(3, 8, 2, 2)
        self.register_buffer("table", sincos(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2] // 2, x.shape[-1] // 2
        x = self.project(x).flatten(2).transpose(1, 2)
        if self.height != height or self.width != width:
            return x + sincos(height, width)
        return x + self.table


class Grown(nn.Module):
    """A table on self, grown where the sequence is longer (fairseq's, speech_to_text's)."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        made = self.make(8, torch.zeros(()))
        if buffer:
            self.register_buffer("table", made, persistent=False)
        else:
            self.table = made

    @staticmethod
    def make(length: int, like: Tensor) -> Tensor:
        places = torch.arange(length, device=like.device, dtype=torch.float32)[:, None]
        return torch.cat([(places / 10).sin(), (places / 10).cos(), (places / 3).sin(), (places / 3).cos()], -1)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > self.table.shape[0]:
            self.table = self.make(x.shape[1], x)
        return x + self.table[: x.shape[1]]


class Cached(nn.Module):
    """A table on self, made again where the length is another than last time (rotary embeddings')."""

    def __init__(self) -> None:
        super().__init__()
        self.length: int | None = None
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.length != x.shape[1] or self.table is None:
            self.length = x.shape[1]
            self.table = Grown.make(x.shape[1], x)
        return x * self.table


class Centred(nn.Module):
    """Positions around the middle of a table that is grown on self (conformers' relative positions)."""

    def __init__(self) -> None:
        super().__init__()
        self.pe: Tensor | None = None
        self.extend(torch.zeros(1, 8, 4))

    def extend(self, x: Tensor) -> None:
        if self.pe is not None and self.pe.size(1) >= x.size(1) * 2 - 1:
            return
        ahead, back = Grown.make(x.size(1), x), -Grown.make(x.size(1), x)
        self.pe = torch.cat([ahead.flip(0), back[1:]], 0)[None]

    def forward(self, x: Tensor) -> Tensor:
        self.extend(x)
        assert self.pe is not None
        middle = self.pe.size(1) // 2
        return torch.einsum(
            "bnd,bmd->bnm", x, self.pe[:, middle - x.size(1) + 1 : middle + x.size(1)].expand(x.size(0), -1, -1)
        )


CASES: dict[str, Callable[[], Case]] = {
    **both_examples(case, "table_again", TableAgain(), torch.randn,
                    sizes=((2, 3, 8, 8), (1, 3, 10, 12), (3, 3, 18, 6))),
    **both_examples(case, "table_grown", Grown(False), torch.randn, sizes=TOKENS),
    **both_examples(case, "buffer_grown", Grown(True), torch.randn, sizes=TOKENS),
    **both_examples(case, "table_cached", Cached(), torch.randn, sizes=TOKENS),
    **both_examples(case, "table_centred", Centred(), torch.randn, sizes=TOKENS),
}  # fmt: skip
