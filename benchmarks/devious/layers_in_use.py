"""What layers of published models do with sizes, masks and tables, each written down once and without its library."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats

BATCH_AND_LENGTH = ({0: "b", 1: "t"},)
LENGTH = ({1: "t"},)
IMAGE = ({2: "h", 3: "w"},)


def lengths(*tried: int, width: int = 4, batch: int = 2) -> list[tuple[Tensor, ...]]:
    """(batch, t, width) of normal numbers for each length."""
    return [(floats(batch, t, width, seed=t),) for t in tried]


def images(*tried: tuple[int, int]) -> list[tuple[Tensor, ...]]:
    """(1, 3, h, w) of normal numbers."""
    return [(floats(1, 3, h, w, seed=h + w),) for h, w in tried]


@devious(lambda: lengths(8, 16, 17, 40, 100), LENGTH)
class DynamicScaling(nn.Module):
    """Rotary angles of which the base grows once a text is longer than what the model was trained for."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.cached = 16, 16
        self.register_buffer("inv_freq", self.frequencies(10000.0))

    @staticmethod
    def frequencies(base: float) -> Tensor:
        return 1.0 / base ** (torch.arange(0, 4, 2) / 4)

    def forward(self, x: Tensor) -> Tensor:
        n, inv = x.shape[1], self.inv_freq
        if n > self.trained:
            inv = self.frequencies(10000.0 * (2.0 * n / self.trained - 1) ** (4 / 2))
        angles = torch.outer(torch.arange(n, dtype=torch.float32), inv)
        turned = torch.cat((-x[..., 2:], x[..., :2]), -1)
        angles = torch.cat((angles, angles), -1)
        return x * angles.cos() + turned * angles.sin()


@devious(lambda: lengths(7, 8, 9, 1, 16, 33), LENGTH)
def padded_to_windows(x: Tensor) -> Tensor:
    """Longformer's: padded to a multiple of the window, attended in windows, and cut."""
    b, n, d = x.shape
    pad = (8 - n % 8) % 8
    if pad > 0:
        x = F.pad(x, (0, 0, 0, pad))
    windows = x.view(b, -1, 8, d)
    return (windows @ windows.transpose(-1, -2)).softmax(-1).matmul(windows).reshape(b, -1, d)[:, :n]


MASKS = [
    torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]),
    torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    torch.ones(2, 5, dtype=torch.int64),
    torch.tensor([[0, 0, 0, 0, 0], [0, 1, 1, 1, 1]]),
]


@devious(lambda: [(floats(2, 5, 4), mask) for mask in MASKS], ({1: "t"}, {1: "t"}))
def positions_of_a_padded_text(x: Tensor, mask: Tensor) -> Tensor:
    position = (mask.cumsum(-1) - 1).masked_fill_(mask == 0, 1)
    table = torch.arange(40.0).view(10, 4).sin()
    return x + table[position]


@devious(lambda: [(floats(2, 5, 4), mask) for mask in MASKS], ({1: "t"}, {1: "t"}))
def fast_where_nothing_is_masked(x: Tensor, mask: Tensor) -> Tensor:
    if bool(mask.all()):
        return F.scaled_dot_product_attention(x, x, x)
    return F.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None].bool())


@devious(lambda: [(floats(6, 4, seed=s),) for s in (1, 2, 3)] + [(floats(1, 4),), (floats(9, 4),)], ({0: "n"},))
class Experts(nn.Module):
    """Tokens routed to two of four experts, one of which may get none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == number)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return out


@devious(lambda: images((16, 16), (7, 9), (8, 8), (24, 40), (5, 30)), IMAGE)
def shifted_where_it_is_large(x: Tensor) -> Tensor:
    """Swin's: no shift, and a smaller window, where the image is no larger than a window."""
    h, w = x.shape[-2:]
    window, shift = 8, 4
    if min(h, w) <= window:
        shift, window = 0, min(h, w)
    right, below = (window - w % window) % window, (window - h % window) % window
    x = F.pad(x, (0, right, 0, below))
    if shift:
        x = torch.roll(x, (-shift, -shift), (2, 3))
    b, c, h2, w2 = x.shape
    x = x.view(b, c, h2 // window, window, w2 // window, window)
    x = x - x.mean((3, 5), keepdim=True)
    x = x.reshape(b, c, h2, w2)
    return (torch.roll(x, (shift, shift), (2, 3)) if shift else x)[..., :h, :w]


@devious(lambda: images((32, 32), (16, 16), (64, 32), (33, 47), (8, 8), (100, 9)), IMAGE)
def pyramid(x: Tensor) -> Tensor:
    levels = [x]
    while min(levels[-1].shape[-2:]) > 8:
        levels.append(F.avg_pool2d(levels[-1], 2))
    return sum(level.mean((2, 3)) for level in levels)


@devious(lambda: lengths(12, 1, 3, 4, 30), LENGTH)
def last_of_a_context(x: Tensor) -> Tensor:
    return x[:, -4:].cumsum(1).mean(1)


@devious(lambda: lengths(10, 3, 1, 64, 200), LENGTH)
class RelativeBuckets(nn.Module):
    """T5's: distances in buckets, exact ones for the near, logarithmic ones for the far."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bias = nn.Embedding(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        distance = torch.arange(n)[None] - torch.arange(n)[:, None]
        side = (distance > 0).long() * 8
        distance = distance.abs()
        large = 4 + (torch.log(distance.float() / 4) / math.log(64 / 4) * 4).long()
        large = torch.min(large, torch.full_like(large, 7))
        bucket = side + torch.where(distance < 4, distance, large)
        return (x @ x.transpose(1, 2) + self.bias(bucket)[..., 0]).softmax(-1) @ x


@devious(lambda: lengths(6, 1, 5, 20, 50), LENGTH)
class GrownMask(nn.Module):
    """A causal mask that is made anew where a text is longer than the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(6, 6).tril().bool(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        if self.mask.size(0) < n:
            self.mask = torch.ones(n, n).tril().bool()
        scores = x @ x.transpose(1, 2)
        return scores.masked_fill(~self.mask[:n, :n], float("-inf")).softmax(-1) @ x


@devious(lambda: lengths(12, 2, 5, 33, 1), LENGTH)
def chunks_of_a_signal(x: Tensor) -> Tensor:
    return torch.stack([part.mean(1) for part in torch.chunk(x, 4, dim=1)]).sum(0)


@devious(lambda: lengths(12, 3, 5, 33), LENGTH)
def tensor_split_of_a_signal(x: Tensor) -> Tensor:
    return torch.stack([part.amax(1) for part in torch.tensor_split(x, 3, dim=1)])


CODES = [floats(2, 5, 4), floats(2, 5, 4, seed=2), torch.zeros(2, 5, 4), 100 * floats(2, 5, 4)]


@devious(lambda: [(x,) for x in CODES], LENGTH)
class Codebook(nn.Module):
    """A vector quantizer, which falls back to the first code where the nearest one is far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", floats(7, 4, seed=9))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        apart = torch.cdist(x, self.codes)
        near, at = apart.min(-1)
        if near.max() > 50:
            at = torch.zeros_like(at)
        return F.embedding(at, self.codes), at


PIXELS = [floats(1, 3, 6, 6), 300 * floats(1, 3, 6, 6, seed=4), -floats(1, 3, 6, 6).abs(), 1e4 * floats(1, 3, 6, 6)]


@devious(lambda: [(torch.trunc(x).clamp(-30000, 30000),) for x in PIXELS], IMAGE)
def bytes_of_pixels(x: Tensor) -> Tensor:
    return (x.to(torch.int32) & 255).to(torch.uint8).float() + (x.long() % 7) + x.int().div(3, rounding_mode="trunc")


COUNTED = [torch.tensor([[3, 0, 2]]), torch.tensor([[0, 0, 0]]), torch.tensor([[1, 7, 1]]), torch.tensor([[0, 5, 0]])]


@devious(lambda: [(floats(1, 3, 4), counts) for counts in COUNTED])
def regulated_lengths(x: Tensor, counts: Tensor) -> Tensor:
    """FastSpeech's: each state repeated as often as its length says; one frame where all are zero."""
    if counts.sum() == 0:
        counts = torch.ones_like(counts)
    return torch.repeat_interleave(x[0], counts[0], dim=0)


@devious(lambda: [(torch.tensor([[5, 9, 2]]),), (torch.tensor([[0, 0, 0]]),), (torch.tensor([[7, 11, 3]]),)])
def dice_of_classes(ids: Tensor) -> Tensor:
    hot = F.one_hot(ids, num_classes=int(ids.max()) + 1).float()
    return hot.sum(1) / hot.sum().clamp(min=1)


@devious(lambda: images((20, 30), (30, 20), (16, 16), (7, 31)), IMAGE)
def square_first(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    if h != w:
        side = max(h, w)
        x = F.pad(x, ((side - w) // 2, side - w - (side - w) // 2, (side - h) // 2, side - h - (side - h) // 2))
    return F.interpolate(x, size=(8, 8), mode="bilinear", align_corners=False)


@devious(lambda: images((20, 30), (21, 31), (9, 15), (64, 48)), IMAGE)
def resized_by_the_long_side(x: Tensor) -> Tensor:
    scale = 24 / max(x.shape[-2:])
    h, w = round(x.shape[-2] * scale), round(x.shape[-1] * scale)
    return F.interpolate(x, size=(h, w), mode="bilinear", align_corners=False).mean((2, 3))


@devious(lambda: images((20, 30), (21, 31), (9, 15), (64, 48), (61, 30)), IMAGE)
def resized_by_a_factor(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=24 / x.shape[-2], mode="bilinear", recompute_scale_factor=True).mean((2, 3))


TAGS = [floats(5, 3, seed=s) for s in (1, 2, 3)] + [floats(1, 3), floats(12, 3)]


@devious(lambda: [(x,) for x in TAGS], ({0: "t"},))
class Viterbi(nn.Module):
    """The best path of a chain: one step for each word, then back along the pointers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", floats(3, 3, seed=7))

    def forward(self, emitted: Tensor) -> Tensor:
        score, pointers = emitted[0], []
        for one in emitted[1:]:
            score, best = (score[:, None] + self.steps).max(0)
            score = score + one
            pointers.append(best)
        path = [score.argmax()]
        for best in reversed(pointers):
            path.append(best[path[-1]])
        return torch.stack(path[::-1])


@devious(lambda: [(floats(2, 9, 4, seed=s), n) for s, n in enumerate(map(torch.tensor, ([9, 4], [9, 9], [3, 9])))])
class Packed(nn.Module):
    """A recurrent layer over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.GRU(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.shape[1])[0]


@devious(lambda: lengths(9, 4, 30, 3), LENGTH)
def reflected_before_a_filter(x: Tensor) -> Tensor:
    pad = min(3, x.shape[1] - 1)
    x = F.pad(x.transpose(1, 2), (pad, pad), mode="reflect")
    return F.avg_pool1d(x, 2 * pad + 1, stride=1)


@devious(lambda: lengths(9, 2, 30, 5), BATCH_AND_LENGTH)
def best_few(x: Tensor) -> Tensor:
    return x.norm(dim=-1).topk(min(5, x.shape[1]), dim=1)[0].sum(1)


@devious(lambda: [(floats(2, n, 4, seed=n), torch.tensor(at)) for n, at in ((3, 0), (3, 5), (1, 9), (4, 2))],
         ({1: "t"}, None))  # fmt: skip
class ShiftedPositions(nn.Module):
    """Positions that begin where a cache ends."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", floats(20, 4, seed=3))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x + self.table[at : at + x.shape[1]]


@devious(lambda: [(floats(2, 3, 8, 8, seed=s) * f,) for s, f in ((1, 1.0), (2, 1.0), (3, 30.0), (4, 0.01))])
def contrast_of_an_image(x: Tensor) -> Tensor:
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    if (high - low).max() < 1:
        return x
    return torch.histc((x - low) / (high - low), bins=6, min=0, max=1)


@devious(lambda: lengths(16, 8, 15, 40, 100), LENGTH)
def strided_or_dense(x: Tensor) -> Tensor:
    """Every n-th frame of a long signal, all of a short one."""
    step = max(1, x.shape[1] // 16)
    return x[:, ::step].sum(1)


@devious(lambda: [(floats(3, n),) for n in (6, 5, 1, 12)], LENGTH)
def median_of_a_window(x: Tensor) -> Tensor:
    windows = F.pad(x, (1, 1), mode="replicate").unfold(-1, 3, 1)
    return windows.median(-1).values if x.shape[1] % 2 == 0 else windows.mean(-1)


BOXES = [
    torch.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [10, 10, 12, 12]]),
    torch.tensor([[0.0, 0, 4, 4], [8, 8, 9, 9], [10, 10, 12, 12], [0, 0, 4, 4]]),
    torch.tensor([[0.0, 0, 4, 4]]),
]


@devious(lambda: [(boxes,) for boxes in BOXES], ({0: "n"},))
def greedy_suppression(boxes: Tensor) -> Tensor:
    """Boxes that overlap an earlier one that is kept are dropped."""
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    overlap = shared / (area[:, None] + area[None] - shared)
    kept: list[int] = []
    for i in range(len(boxes)):
        if all(overlap[i, j] <= 0.3 for j in kept):
            kept.append(i)
    return boxes[kept]


@devious(lambda: [(floats(2, 3, n), m) for n, m in ((8, None), (5, None), (20, None))], ({2: "t"}, None))
def masked_by_what_is_given(x: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        mask = x.new_ones(x.shape[0], 1, x.shape[2])
        mask[..., -(x.shape[2] // 4) :] = 0
    return (x * mask).sum(-1) / mask.sum(-1).clamp(min=1)
