"""torchvision's Swin: windows, cyclic shift and mask at sizes known at run time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.proof_cases import randomised
from onnxpatch.formulas.windows import is_static, merge, more_than, pad_to, partition, roll, shift_mask, windows_over


class _Blocks(nn.Module):
    """One shifted block of Swin and one of Swin V2."""

    def __init__(self) -> None:
        from torchvision.models import swin_transformer as swin

        super().__init__()
        self.first = swin.ShiftedWindowAttention(8, [4, 4], [2, 2], 2)
        self.second = swin.ShiftedWindowAttentionV2(8, [4, 4], [2, 2], 2)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def _maps() -> list[tuple[Tensor]]:
    """One window along both sides or one; more of them, with and without padding."""
    return [(torch.randn(*size, 8),) for size in ((2, 2, 4), (1, 8, 12), (3, 9, 7), (2, 4, 10), (2, 13, 3))]


@op(
    "torchvision.models.swin_transformer.shifted_window_attention",
    name="torchvision-windows",
    why="exported with dynamic height and width, the graph keeps the padding, windows and shift mask of its example",
    reason="relative error",
    link="https://github.com/pytorch/vision/issues/7103",
    tries=_maps,
    case=_Blocks,
    unchanged="fixed sizes",
)
def shifted_window_attention(
    original: object,
    input: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    relative_position_bias: Tensor,
    window_size: list[int],
    num_heads: int,
    shift_size: list[int],
    attention_dropout: float = 0.0,
    dropout: float = 0.0,
    qkv_bias: Tensor | None = None,
    proj_bias: Tensor | None = None,
    logit_scale: Tensor | None = None,
    training: bool = True,
) -> Tensor:
    """(B, H, W, C) to the same; an axis that one window covers is not shifted. Source: https://arxiv.org/abs/2103.14030"""
    height, width = input.shape[1:3]
    # In training the original drops weights at random, which is not written here.
    if training or is_static(height, width):
        return NotImplemented
    window, shift = (window_size[0], window_size[1]), (shift_size[0], shift_size[1])
    grid = (windows_over(height, window[0]), windows_over(width, window[1]))
    # As numbers 0 and 1: a shift by 0 is none, and no branch is needed.
    moved = [more_than(1, count) for count in grid]
    forth, back = ((sign * shift[0] * moved[0], sign * shift[1] * moved[1]) for sign in (-1, 1))
    x = pad_to(input, window)
    windows = partition(roll(x, forth) if any(shift) else x, window, grid[1])
    q, k, v = _heads(windows, qkv_weight, qkv_bias, num_heads, cosine=logit_scale is not None)
    scores = _scores(q, k, logit_scale) + relative_position_bias
    if any(shift):
        mask = shift_mask(window, shift, grid, scores, (moved[0], moved[1]))
        area = window[0] * window[1]
        by_image = scores.reshape(-1, grid[0] * grid[1], num_heads, area, area)
        scores = (by_image + mask[:, None]).reshape(-1, num_heads, area, area)
    attended = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    x = merge(functional.linear(attended, proj_weight, proj_bias), window, grid)
    return (roll(x, back) if any(shift) else x)[:, :height, :width]


def _heads(windows: Tensor, weight: Tensor, bias: Tensor | None, heads: int, cosine: bool) -> tuple[Tensor, ...]:
    """Queries, keys and values, each (windows, heads, cells, C / heads). With cosine attention keys have no bias."""
    if cosine and bias is not None:
        of_queries, of_keys, of_values = bias.chunk(3)
        bias = torch.cat([of_queries, torch.zeros_like(of_keys), of_values])
    qkv = functional.linear(windows, weight, bias)
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def _scores(q: Tensor, k: Tensor, logit_scale: Tensor | None) -> Tensor:
    if logit_scale is None:
        return (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    # The limit that Swin V2 was trained with.
    scale = torch.clamp(logit_scale, max=math.log(100.0)).exp()
    return functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1) * scale
