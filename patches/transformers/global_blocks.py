"""LongT5's bias of global tokens in blocks, where a text is too short to have a global token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import op
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.symbolic import symbolic


class _Global(torch.nn.Module):
    """Attention to a window, and to the sum of every four tokens."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LongT5Config
        from transformers.models.longt5.modeling_longt5 import LongT5TransientGlobalAttention

        config = LongT5Config(d_model=8, d_kv=4, num_heads=2, local_radius=3, global_block_size=4)
        self.attention: Any = randomised(LongT5TransientGlobalAttention(config, has_relative_attention_bias=True))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, mask)[0]


def _texts() -> list[tuple[Tensor, Tensor]]:
    made = []
    for batch, length in ((2, 9), (3, 12), (1, 2)):
        mask = torch.ones(batch, length)
        mask[0, -1] = 0
        made.append((torch.randn(batch, length, 8), mask))
    return made


@op(
    "transformers.models.longt5.modeling_longt5._split_into_blocks",
    name="longt5-blocks",
    why="Reshape: i < input_shape.NumDimensions() was false. The dimension with value zero exceeds the dimension size",
    reason="dimension with value zero",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/longt5/modeling_longt5.py",
    exporters=("trace",),
    tries=_texts,
    case=_Global,
)
def split_into_blocks(original: object, x: Tensor, block_len: int, dim: int) -> Tensor:
    """x: (..., length, global tokens), dim -2. ONNX's Reshape takes a size of 0 for "as it was": none is 0 here."""
    if dim != -2 or not symbolic(x.shape[-1]):
        return NotImplemented
    length, wide = x.shape[-2], x.shape[-1]
    count = (length + block_len - 1) // block_len
    # One more column, which is cut off again: with it no size is 0.
    padded = functional.pad(x, (0, 1, 0, count * block_len - length))
    return padded.reshape([*x.shape[:-2], count, block_len, wide + 1])[..., :wide]
