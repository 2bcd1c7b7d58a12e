"""Python on sizes and on data that sizes something: ifs, loops, numbers and tables, in models of a few lines each.

Every case is judged at sizes that the export never saw, with other data. ``docs/operators.md`` says what came of each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.cases import operators
from benchmarks.cases.operators import BOTH

LIBRARIES = ("torch",)
IMAGES = ((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 5, 7), (2, 3, 20, 16))
TOKENS = ((2, 6, 4), (3, 9, 4), (1, 1, 4), (2, 14, 4))


class One(operators.One):
    """Of this file, as the functions are: Python's `int` and `len` stay symbolic in the files of a model's classes."""


class Two(operators.Two):
    """The same with two arguments."""


case = functools.partial(operators.case, models=(One, Two))


def pad_where_needed(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    ph, pw = (4 - h % 4) % 4, (4 - w % 4) % 4
    if ph or pw:
        x = F.pad(x, (0, pw, 0, ph))
    return F.avg_pool2d(x, 4)


def pad_and_crop(x: Tensor) -> Tensor:
    h, w = x.shape[2], x.shape[3]
    pad_h = (4 - h % 4) % 4
    pad_w = (4 - w % 4) % 4
    if pad_h > 0 or pad_w > 0:
        x = F.pad(x, (0, pad_w, 0, pad_h))
    b, c, hp, wp = x.shape
    windows = x.view(b, c, hp // 4, 4, wp // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
    windows = (windows @ windows.transpose(1, 2)).softmax(-1) @ windows
    x = windows.view(b, hp // 4, wp // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, hp, wp)
    if pad_h > 0 or pad_w > 0:
        x = x[:, :, :h, :w]
    return x


def crop_where_longer(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        x = x[:, :8]
    return x * 2


def crop_the_other(x: Tensor, y: Tensor) -> Tensor:
    """What a decoder's upsampled map and its skip have in common."""
    y = y.repeat_interleave(2, dim=1)
    if y.shape[1] > x.shape[1]:
        y = y[:, : x.shape[1]]
    return x + y


def resize_where_different(x: Tensor, y: Tensor) -> Tensor:
    if y.shape[-2:] != x.shape[-2:]:
        y = F.interpolate(y, size=x.shape[-2:], mode="nearest")
    return x + y


class Unet(nn.Module):
    """Halved twice, doubled twice, to the sizes on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3, 3, 3, 2, 1) for _ in range(2))
        self.up = nn.ModuleList(nn.Conv2d(6, 3, 3, 1, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        hand_on = any(size % 4 != 0 for size in x.shape[-2:])
        for down in self.down:
            kept.append(down(kept[-1]).relu())
        x = kept.pop()
        for up in self.up:
            skip = kept.pop()
            size = skip.shape[-2:] if hand_on else None
            x = F.interpolate(x, size=size) if size is not None else F.interpolate(x, scale_factor=2.0)
            x = up(torch.cat([x, skip], 1))
        return x


class UnetPads(Unet):
    """Doubled, and padded by what the skip is larger (the classical UNet)."""

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        for down in self.down:
            kept.append(F.max_pool2d(down(F.interpolate(kept[-1], scale_factor=2)), 2))
        x = kept.pop()
        for up in self.up:
            skip = kept.pop()
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = up(torch.cat([skip, x], 1))
        return x


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


def mask_where_it_matters(x: Tensor, mask: Tensor) -> Tensor:
    """mamba's and its relatives'."""
    if mask is not None and mask.shape[1] > 1 and mask.shape[0] > 1:
        x = x * mask[:, :, None]
    return x.cumsum(1)


def windows(x: Tensor) -> Tensor:
    b, n, c = x.shape
    pad = -n % 4
    x = F.pad(x, (0, 0, 0, pad))
    parts = x.reshape(b, (n + pad) // 4, 4, c)
    places = torch.arange(n + pad).reshape(-1, 4) < n
    scores = (parts @ parts.transpose(-1, -2)).masked_fill(~places[None, :, None], -1e9)
    return (scores.softmax(-1) @ parts).reshape(b, n + pad, c)[:, :n]


def strips(x: Tensor) -> Tensor:
    """Stripes whose width is the smaller of 4 and the image's."""
    b, c, h, w = x.shape
    size = min(4, w)
    wide = w // size
    return x[..., : wide * size].reshape(b, c, h, wide, size).amax(-1)


def shifted_mask(x: Tensor) -> Tensor:
    """Swin's: regions numbered by slices."""
    _, _, h, w = x.shape
    regions = torch.zeros(h, w)
    count = 0
    for rows in (slice(0, -4), slice(-4, -2), slice(-2, None)):
        for columns in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            regions[rows, columns] = count
            count += 1
    return x + regions


def chunk_by_chunk(x: Tensor) -> Tensor:
    """Four tokens at a time, each by itself, put together again."""
    done = []
    for start in range(0, x.shape[1], 4):
        done.append(F.gelu(x[:, start : start + 4]) * 2)
    return torch.cat(done, 1)


def chunks_that_matter(x: Tensor) -> Tensor:
    """The same with a softmax over each chunk."""
    done = []
    for start in range(0, x.shape[1], 4):
        done.append(x[:, start : start + 4].softmax(1))
    return torch.cat(done, 1)


def slice_by_slice(x: Tensor) -> Tensor:
    """A decoder run over one image after the other, to save memory."""
    if x.shape[0] > 1:
        return torch.cat([F.avg_pool2d(part, 2) for part in x.split(1)])
    return F.avg_pool2d(x, 2)


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


def rows_apart(x: Tensor) -> Tensor:
    return torch.cat([row * 2 for row in x])


def rows_with_state(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    found = []
    for t in range(x.shape[1]):
        state = (state * 0.7 + x[:, t]).tanh()
        found.append(state)
    return torch.stack(found, 1)


def linear_recurrence(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    decay = x.sigmoid()
    found = []
    for t in range(x.shape[1]):
        state = decay[:, t] * state + x[:, t]
        found.append(state)
    return torch.stack(found, 1)


def written_step_by_step(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    state = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        state = state * 0.5 + x[:, t]
        out[:, t] = state
    return out


def backwards(x: Tensor) -> Tensor:
    state = torch.zeros_like(x[:, 0])
    found: list[Tensor] = []
    for t in reversed(range(x.shape[1])):
        state = (state + x[:, t]).tanh()
        found.insert(0, state)
    return torch.stack(found, 1)


class Steps(nn.Module):
    """A GRU cell over the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 5)
        for token in x.unbind(1):
            state = self.cell(token, state)
        return state


def normalised_by_size(x: Tensor) -> Tensor:
    return F.layer_norm(x, [x.shape[-1]]) + F.layer_norm(x, tuple(x.shape[-1:]))


def kernel_of_the_size(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, (x.size(2), x.size(3))) + F.max_pool2d(x, kernel_size=x.size()[2:])


def missing_as_number(x: Tensor) -> Tensor:
    missing = (4 - x.shape[1] % 4) % 4
    return x * missing + torch.arange(missing).sum() + missing


def negative_rest(x: Tensor) -> Tensor:
    rest = -x.shape[1] % 4
    return x * rest + rest


def whole_part_as_number(x: Tensor) -> Tensor:
    size = int(x.shape[1] * 2.0 + 0.1)
    y = F.interpolate(x.transpose(1, 2), scale_factor=(x.shape[1] * 2 + 0.1) / x.shape[1])
    return y * size + size


def is_integer(x: Tensor) -> Tensor:
    half = x.shape[1] / 2
    missing = 0 if half.is_integer() else 1
    return F.pad(x, (0, 0, 0, missing)).reshape(x.shape[0], -1, 2, x.shape[2])


def integer_keys(x: Tensor) -> dict[int, Tensor]:
    return {n: x[:, :n].mean(1) for n in (1, 2)}


def split_in_halves(x: Tensor) -> Tensor:
    left, right = x.split(x.shape[1] // 2, 1)[:2]
    return left - right


def split_all(x: Tensor) -> list[Tensor]:
    return [part.amax(1) for part in x.split(2, 1)][:2]


def chunks_unpacked(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return a.sum(1) * b.sum(1)


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


def both_examples(
    name: str, build: Callable[..., Any], *args: Any, sizes: Sequence[tuple[int, ...]], **more: Any
) -> dict[str, Callable[[], Case]]:
    """From a size at which the `if` is false, and from one at which it is true."""
    return {name: case(build, *args, sizes, **more), f"{name}_other": case(build, *args, sizes[::-1], **more)}


def skip(b: int, h: int, w: int, halves: int = 0) -> tuple[Tensor, Tensor]:
    return torch.randn(b, 3, h, w), torch.randn(b, 3, (h + halves) // (1 + halves), (w + halves) // (1 + halves))


MAPS = ((2, 8, 12, 0), (1, 9, 11, 1), (3, 5, 7, 1), (2, 20, 16, 0))
SKIP = ({0: "b", 2: "h", 3: "w"}, {0: "b", 2: "y", 3: "x"})

CASES: dict[str, Callable[[], Case]] = {
    **both_examples("pad_where_needed", pad_where_needed, torch.randn, sizes=IMAGES[:2]),
    **both_examples("pad_and_crop", pad_and_crop, torch.randn, sizes=IMAGES[:2]),
    **both_examples("crop_where_longer", crop_where_longer, torch.randn, sizes=((2, 6, 4), (3, 9, 4), (1, 17, 4))),
    "crop_the_other": case(
        crop_the_other, lambda b, n: (torch.randn(b, n, 4), torch.randn(b, (n + 1) // 2, 4)),
        ((2, 6), (3, 9), (1, 1), (2, 15)), axes=({0: "b", 1: "n"}, {0: "b", 1: "m"})),
    **both_examples("resize_where_different", resize_where_different, skip, sizes=MAPS[:2], axes=SKIP),
    **both_examples("unet", Unet(), torch.randn, sizes=((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 21, 16))),
    "unet_pads": case(UnetPads(), sizes=((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 21, 16))),
    **both_examples("table_again", TableAgain(), torch.randn, sizes=((2, 3, 8, 8), (1, 3, 10, 12), (3, 3, 18, 6))),
    **both_examples("mask_where_it_matters", mask_where_it_matters,
                    lambda b, n: (torch.randn(b, n, 4), (torch.rand(b, n) > 0.4).float()),
                    axes=({0: "b", 1: "n"},) * 2, sizes=((2, 6), (3, 9), (1, 1), (1, 14))),
    "windows": case(windows, sizes=TOKENS),
    "strips": case(strips, sizes=(*IMAGES, (1, 3, 4, 3))),
    "shifted_mask": case(shifted_mask, sizes=IMAGES),
    "chunk_by_chunk": case(chunk_by_chunk, sizes=TOKENS),
    "chunks_that_matter": case(chunks_that_matter, sizes=TOKENS),
    **both_examples("slice_by_slice", slice_by_slice, torch.randn, sizes=((1, 3, 8, 12), (2, 3, 8, 12), (3, 3, 8, 12))),
    **both_examples("table_grown", Grown(False), torch.randn, sizes=TOKENS),
    **both_examples("buffer_grown", Grown(True), torch.randn, sizes=TOKENS),
    **both_examples("table_cached", Cached(), torch.randn, sizes=TOKENS),
    **both_examples("table_centred", Centred(), torch.randn, sizes=TOKENS),
    **RAGGED,
    "rows_apart": case(rows_apart, sizes=TOKENS),
    "rows_with_state": case(rows_with_state, sizes=TOKENS),
    "linear_recurrence": case(linear_recurrence, sizes=TOKENS),
    "written_step_by_step": case(written_step_by_step, sizes=TOKENS),
    "backwards": case(backwards, sizes=TOKENS),
    "cells": case(Steps(), sizes=TOKENS),
    "normalised_by_size": case(normalised_by_size, sizes=TOKENS),
    "kernel_of_the_size": case(kernel_of_the_size, sizes=IMAGES),
    "missing_as_number": case(missing_as_number, sizes=TOKENS),
    "negative_rest": case(negative_rest, sizes=TOKENS),
    "whole_part_as_number": case(whole_part_as_number, sizes=TOKENS),
    "is_integer": case(is_integer, sizes=TOKENS),
    "integer_keys": case(integer_keys, sizes=TOKENS),
    "split_in_halves": case(split_in_halves, sizes=((2, 6, 4), (3, 10, 4), (1, 2, 4))),
    "split_all": case(split_all, sizes=((2, 6, 4), (3, 10, 4), (1, 4, 4))),
    "chunks_unpacked": case(chunks_unpacked, sizes=((2, 6, 4), (3, 9, 4), (1, 2, 4))),
    "multinomial": case(multinomial, sizes=BOTH),
    "lstm_packed": case(lstm_packed(False), with_lengths(1), LENGTHS, axes=SIZED),
    "lstm_packed_total": case(lstm_packed(True), with_lengths(1), LENGTHS, axes=SIZED),
}  # fmt: skip
