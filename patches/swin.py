"""Blocks of timm's and torchvision's Swin and Swin V2 at sizes known at run time.

Plain torch.export gets timm's right. But their mask is nine assignments to slices, and sympy reasons about each: with
dynamic height and width that is most of the time of an export. Here there are few nodes and few symbolic sizes.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas.windows import is_static, merge, more_than, pad_to, partition, rolled, shift_mask, windows_over
from onnxpatch.patching.proof import randomised

WRITTEN_FOR = "timm 1.0.31"

LINK = "https://github.com/huggingface/pytorch-image-models/issues/1844"
SLOW = "exporting with dynamic height and width takes minutes: sizes nested in paddings, a mask written slice by slice"
_row = functools.partial(patch, why=SLOW, link=LINK)
_MODELS = "timm.models"
# Blocks with the same `_attn`.
_BLOCKS = (("swin_transformer", "SwinTransformerBlock"), ("swin_transformer_v2", "SwinTransformerV2Block"))
# For windows of 4: whole ones, padded ones, a map as high as one window, and odd sizes.
_SIZES = ((2, 8, 12), (1, 9, 6), (3, 4, 8), (2, 11, 5))


def _blocks() -> nn.Module:
    """A shifted block of timm's Swin and one of Swin V2, (B, H, W, C) to the same, for maps of any size."""
    import importlib

    found = [getattr(importlib.import_module(f"{_MODELS}.{module}"), name) for module, name in _BLOCKS]
    sizes = dict(num_heads=2, window_size=4, shift_size=2, dynamic_mask=True)
    return randomised(nn.Sequential(*(block(8, (8, 8), **sizes) for block in found)))


def _cr_block() -> nn.Module:
    from timm.models.swin_transformer_v2_cr import SwinTransformerV2CrBlock

    return randomised(SwinTransformerV2CrBlock(8, 2, (8, 8), (4, 4), (2, 2), dynamic_mask=True))


def _maps() -> list[tuple[Tensor]]:
    return [(torch.randn(*size, 8),) for size in _SIZES]


@_row(
    *(f"{_MODELS}.{module}.{name}" for module, name in _BLOCKS),
    name="timm-swin-block",
    when=When(
        exporters=("dynamo", "trace"),
        bodies={
            # Of each method the code of Swin and the code of Swin V2.
            "_attn": {KnownBody("1729d45df45b", WRITTEN_FOR), KnownBody("a2366c403bfa", WRITTEN_FOR)},
            "get_attn_mask": {KnownBody("ded0a17b976e", WRITTEN_FOR), KnownBody("f94db34fc30a", WRITTEN_FOR)},
        },
    ),
    proof=Proof(_blocks, _maps, leaner=("dynamo", "trace"), unchanged="fixed sizes"),
)
class _SwinBlock:
    """Attention in the windows of a map that is shifted, then padded."""

    def _attn(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to the same."""
        return _within_windows(self, x)


@_row(
    f"{_MODELS}.swin_transformer_v2_cr.SwinTransformerV2CrBlock",
    name="timm-swin-cr-block",
    when=When(
        exporters=("dynamo", "trace"),
        bodies={
            "_shifted_window_attn": {KnownBody("afd4b7beb6ad", WRITTEN_FOR)},
            "get_attn_mask": {KnownBody("95172cd6832e", WRITTEN_FOR)},
        },
    ),
    proof=Proof(_cr_block, _maps, leaner=("dynamo", "trace"), unchanged="fixed sizes"),
)
class _SwinCrBlock:
    """The same in timm's other implementation of Swin V2."""

    def _shifted_window_attn(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to the same."""
        return _within_windows(self, x)


def _within_windows(block: Any, x: Tensor) -> Tensor:
    (height, width), (high, wide) = x.shape[1:3], block.window_size
    if is_static(height, width):
        return NotImplemented
    shift, shifted = (block.shift_size[0], block.shift_size[1]), any(block.shift_size)
    grid = windows_over(height, high), windows_over(width, wide)
    # timm shifts the map and pads it then; transformers' Swin does it the other way round.
    moved = torch.roll(x, (-shift[0], -shift[1]), (1, 2)) if shifted else x
    windows = partition(pad_to(moved, (high, wide)), (high, wide), grid[1])
    mask = block.attn_mask
    if getattr(block, "dynamic_mask", False):
        mask = shift_mask((high, wide), shift, grid, x) if shifted else None
    merged = merge(block.attn(windows, mask=mask), (high, wide), grid)[:, :height, :width]
    return torch.roll(merged, shift, (1, 2)) if shifted else merged


# ------------------------------------------------------------------ torchvision
class _TorchvisionBlocks(nn.Module):
    """One shifted block of Swin and one of Swin V2."""

    def __init__(self) -> None:
        from torchvision.models import swin_transformer as swin

        super().__init__()
        self.first = swin.ShiftedWindowAttention(8, [4, 4], [2, 2], 2)
        self.second = swin.ShiftedWindowAttentionV2(8, [4, 4], [2, 2], 2)
        randomised(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def _torchvision_maps() -> list[tuple[Tensor]]:
    """One window along both sides or one; more of them, with and without padding."""
    return [(torch.randn(*size, 8),) for size in ((2, 2, 4), (1, 8, 12), (3, 9, 7), (2, 4, 10), (2, 13, 3))]


@op(
    "torchvision.models.swin_transformer.shifted_window_attention",
    name="torchvision-windows",
    why="exported with dynamic height and width, the graph keeps the padding, windows and shift mask of its example",
    reason="relative error",
    link="https://github.com/pytorch/vision/issues/7103",
    tries=_torchvision_maps,
    case=_TorchvisionBlocks,
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
    windows = partition(rolled(x, forth) if any(shift) else x, window, grid[1])
    q, k, v = _heads(windows, qkv_weight, qkv_bias, num_heads, cosine=logit_scale is not None)
    scores = _scores(q, k, logit_scale) + relative_position_bias
    if any(shift):
        mask = shift_mask(window, shift, grid, scores, (moved[0], moved[1]))
        area = window[0] * window[1]
        by_image = scores.reshape(-1, grid[0] * grid[1], num_heads, area, area)
        scores = (by_image + mask[:, None]).reshape(-1, num_heads, area, area)
    attended = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    x = merge(functional.linear(attended, proj_weight, proj_bias), window, grid)
    return (rolled(x, back) if any(shift) else x)[:, :height, :width]


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
