"""The mask of padding for recurrent layers, which transformers leaves out for a text of one token."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import as_tensor, symbolic

_MASKS = "transformers.masking_utils"


class _Masked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Loaded before the model is patched, as it is where a model's own module imports it.
        importlib.import_module(_MASKS)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        found = importlib.import_module(_MASKS).create_recurrent_attention_mask(None, x, mask)
        return x if found is None else x * found[:, :, None]


@op(
    f"{_MASKS}.create_recurrent_attention_mask",
    name="recurrent-mask",
    why="if inputs_embeds.shape[1] == 1: return None; the graph masks a text of one token too",
    reason="relative error|at \\[",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
    tries=lambda b, n: (torch.randn(b, n, 4), torch.arange(b * n).reshape(b, n) % 3),
    sizes=((2, 5), (3, 9), (1, 1)),  # of one token, which transformers treats apart
    case=_Masked,
    unchanged="fixed sizes",
)
def recurrent_mask(
    original: Callable[..., Tensor | None],
    config: object,
    inputs_embeds: Tensor,
    attention_mask: Tensor | None,
    past_key_values: object = None,
    **others: object,
) -> Tensor | None:
    """inputs_embeds: (batch, length, channels); attention_mask: (batch, seen + length). Returns (batch, length), ones
    for a text of one token."""
    length = inputs_embeds.shape[1]
    if attention_mask is None or attention_mask.dim() != 2 or not symbolic(length):
        return NotImplemented
    single = as_tensor(length, torch.int64) == 1
    # The last ones: a mask covers the tokens in the cache as well.
    return torch.where(single, torch.ones_like(attention_mask), attention_mask)[:, -length:]
