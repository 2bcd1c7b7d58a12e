"""flex_attention in plain tensor operations: score_mod and mask_mod are called once, with all index pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch import RefusedError, op
from onnxpatch.formulas.attention import repeat_heads

Mod = Callable[..., torch.Tensor]
MODULE = "torch.nn.attention.flex_attention"


@dataclass(frozen=True)
class MaskFunction:
    """Replaces a BlockMask during export: only the mask function. Blocks matter for kernels only."""

    mask_mod: Mod

    # As BlockMask has it: models move their masks to a device.
    def to(self, device: object) -> MaskFunction:
        return self


def pairs(scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Indices of batch, head, query and key that broadcast to (batch, heads, queries, keys)."""
    shape = lambda axis: [-1 if i == axis else 1 for i in range(4)]  # noqa: E731
    return tuple(torch.arange(scores.shape[i], device=scores.device).view(shape(i)) for i in range(4))


class _Windowed(torch.nn.Module):
    """Causal attention within a window, with a bias by distance for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.1]))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        # `i != 1`: query 1 may attend to nothing.
        near = lambda b, h, i, j: (i >= j) & (i - j < 4) & (i != 1)  # noqa: E731
        mask = create_block_mask(near, None, None, q.shape[2], q.shape[2], device="cpu")
        bias = lambda score, b, h, i, j: score - self.slopes[h] * (i - j)  # noqa: E731
        return flex_attention(q, k, k, score_mod=bias, block_mask=mask, enable_gqa=True)


@op(
    f"{MODULE}.flex_attention",
    name="flex-attention",
    why="No ONNX function found for <torch.ops.higher_order.flex_attention>; Unsupported value kind: Tensor",
    reason="flex_attention|aten.sort|Unsupported value kind|BLOCK_SIZE",
    link="https://github.com/pytorch/pytorch/issues/147371",
    tries=lambda b, n: (torch.randn(b, 2, n, 16), torch.randn(b, 1, n, 16)),
    sizes=((2, 9), (1, 17), (3, 4)),
    case=_Windowed,
    beside=("flex-attention-mask", "stable-sort"),
)
def flex_attention(
    original: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: object = None,
    *,
    return_aux: object = None,
) -> object:
    """As in torch, but return_aux is refused. (batch, heads, length, features)."""
    if return_aux is not None:
        raise RefusedError("flex_attention with return_aux has no ONNX form here: ask for the output alone")
    if enable_gqa:
        # score_mod is called with the number of the query's head, so heads cannot be grouped into rows.
        key, value = repeat_heads(key, query.shape[1], 1), repeat_heads(value, query.shape[1], 1)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    where = pairs(scores)
    if score_mod is not None:
        scores = score_mod(scores, *where)
    if block_mask is not None:
        # Asked once with all pairs: a mask function is elementwise, since flex_attention calls it under vmap.
        allowed = block_mask.mask_mod(*where)
        scores = torch.where(allowed, scores, torch.full_like(scores, -math.inf))
    # A query that may attend to no key gives zeros. Its largest score is -inf, and -inf - -inf would be NaN.
    largest = scores.amax(-1, keepdim=True)
    largest = torch.where(largest == -math.inf, torch.zeros_like(largest), largest)
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    output = torch.matmul(weights / torch.where(total == 0, torch.ones_like(total), total), value)
    return (output, (torch.log(total) + largest).squeeze(-1)) if return_lse else output


def _mask_only(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, x.shape[2], x.shape[2], device="cpu")
    return flex_attention(x, x, x, block_mask=mask)


@op(
    f"{MODULE}.create_block_mask",
    name="flex-attention-mask",
    why="Exporting the operator 'aten::sort' with stable=True, or vmap, of create_block_mask is not supported",
    reason="Unsupported value kind|BLOCK_SIZE",
    link="https://github.com/pytorch/pytorch/issues/147371",
    fails=("trace",),  # dynamo is right without it, and must stay so
    tries=lambda b, n: torch.randn(b, 1, n, 16),
    sizes=((2, 9), (1, 17), (3, 4)),
    case=_mask_only,
    beside=("flex-attention", "stable-sort"),
)
def create_block_mask(original: object, mask_mod: Mod, *args: object, **kwargs: object) -> MaskFunction:
    """Returns a `MaskFunction`, which `flex_attention` above calls with all pairs of tokens."""
    return MaskFunction(mask_mod)
