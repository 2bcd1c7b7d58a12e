"""The causal mask of attention that is not causal by itself: eager leaves it out where no token is padding.

transformers relies on the attention's own `is_causal` then. Where that is False (PaliGemma, and Gemma with
`use_bidirectional_attention`), the tokens of a batch without padding see all others, those of a batch with
padding only the ones before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.symbolic import as_tensor


class _Gemma(torch.nn.Module):
    def __init__(self, bidirectional: bool = True) -> None:
        super().__init__()
        from transformers import GemmaConfig, GemmaModel

        config = GemmaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                             num_key_value_heads=1, head_dim=4, vocab_size=9,
                             use_bidirectional_attention=bidirectional)  # fmt: skip
        self.decoder = randomised(GemmaModel(config))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.decoder(ids, attention_mask=mask, use_cache=False).last_hidden_state


@op(
    "transformers.masking_utils.create_causal_mask",
    name="skipped-causal-mask",
    why="_ignore_causal_mask_sdpa: not where the model is exported, so that the graph masks what eager sees",
    reason="relative error",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
    # Padded, not padded, one token.
    tries=lambda b, n, kept: (
        torch.randint(1, 9, (b, n)),
        (torch.arange(n) < torch.tensor([[n]] * (b - 1) + [[kept]])).long(),
    ),
    sizes=((2, 5, 3), (3, 7, 7), (2, 4, 4), (2, 6, 2), (1, 1, 1)),
    case=_Gemma,
    unchanged=lambda: _Gemma(bidirectional=False),
)
def causal_mask(
    original: Callable[..., object],
    config: Any,
    inputs_embeds: Tensor,
    attention_mask: Tensor | None,
    past_key_values: object,
    position_ids: Tensor | None = None,
    **others: object,
) -> object:
    """attention_mask: (batch, seen + length). Returns (batch, 1, length, seen + length), true where a key is seen."""
    causal = getattr(config, "is_causal", True) and getattr(config, "use_bidirectional_attention", False) is not True
    overlaid = any(others.get(name) is not None for name in _OVERLAYS) or others.get("allow_is_causal_skip") is False
    if causal or overlaid or config._attn_implementation != "sdpa":
        return NotImplemented
    if attention_mask is None:
        return None if past_key_values is None else NotImplemented
    made = original(config, inputs_embeds, attention_mask, past_key_values, position_ids, **others)
    if attention_mask.dim() != 2 or not isinstance(made, Tensor) or made.dtype != torch.bool:
        return made
    # Without a cache there are as many keys as queries, which is the other condition of eager's.
    left_out = attention_mask.bool().all()
    if past_key_values is not None:
        keys, queries = (as_tensor(size, torch.int64) for size in (made.shape[-1], made.shape[-2]))
        left_out = left_out & (keys == queries)
    return made | left_out


_OVERLAYS = ("or_mask_function", "and_mask_function", "block_sequence_ids")
