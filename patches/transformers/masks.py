"""Masks that transformers makes, or leaves out, by an `if` on the data or the length of the example."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas.symbolic import all_ones, as_tensor, symbolic
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "transformers 5.23.0"
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


def _landmarks() -> torch.nn.Module:
    """Nyström attention over landmarks: it refuses a mask of queries by keys."""
    from transformers import NystromformerConfig, NystromformerModel

    config = NystromformerConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                                 vocab_size=9, num_landmarks=2, segment_means_seq_len=6)  # fmt: skip
    return computing(lambda encoder, ids: encoder(ids).last_hidden_state, randomised(NystromformerModel(config)))


def _two_ways() -> torch.nn.Module:
    """An encoder that is given a mask: it is data."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9)
    return computing(
        lambda encoder, ids: encoder(ids, attention_mask=ids.ne(0).long()).last_hidden_state,
        randomised(BertModel(config)),
    )


@op(
    "transformers.masking_utils._ignore_bidirectional_mask_sdpa",
    name="bidirectional-mask",
    why="not is_torchdynamo_exporting(): an encoder without a mask gets one of ones while it is exported; The size of "
    "tensor a must match the size of tensor b, and attention with a mask takes longer",
    reason="must match the size",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
    tries=lambda batch: torch.randint(0, 9, (batch, 6)),
    sizes=(2, 3, 1),
    case=_landmarks,
    unchanged=_two_ways,
)
def ignored_mask(
    original: object, padding_mask: Tensor | None, kv_length: object, local_attention_size: int | None = None
) -> object:
    """Whether there is no mask of padding, or one of ones, as in eager. padding_mask: (batch, length)."""
    if local_attention_size is not None or not (padding_mask is None or all_ones(padding_mask)):
        return NotImplemented
    return True


def _gemma(bidirectional: bool) -> torch.nn.Module:
    from transformers import GemmaConfig, GemmaModel

    config = GemmaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=4, vocab_size=9,
                         use_bidirectional_attention=bidirectional)  # fmt: skip
    return computing(
        lambda decoder, ids, mask: decoder(ids, attention_mask=mask, use_cache=False).last_hidden_state,
        randomised(GemmaModel(config)),
    )


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
    case=lambda: _gemma(bidirectional=True),
    unchanged=lambda: _gemma(bidirectional=False),
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


def _doge() -> torch.nn.Module:
    from transformers import DogeConfig
    from transformers.models.doge.modeling_doge import DogeAttention

    config = DogeConfig(hidden_size=8, num_attention_heads=2, keep_window_size=6)
    return computing(
        lambda attention, x, states: attention.prepare_dynamic_mask(x, states, 6), randomised(DogeAttention(config, 0))
    )


@patch(
    "transformers.models.doge.modeling_doge.DogeAttention",
    name="doge-mask",
    why="if attn_mask.shape[-1] > keep_window_size: decided by the example's length",
    link="https://github.com/huggingface/transformers/pull/35891",
    when=When(bodies={"prepare_dynamic_mask": {KnownBody("183f32b653c4", WRITTEN_FOR)}}),
    proof=Proof(
        build=_doge,
        # The window has 6 keys: texts shorter and longer than it.
        inputs=lambda: [(torch.randn(b, n, 8), torch.rand(b, 2, n)) for b, n in ((2, 5), (3, 9), (1, 1))],
        fails=("dynamo", "trace"),
        reason="relative error|inferred",
    ),
)
class _DogeAttention:
    """Attention to the keys of the largest weights."""

    def prepare_dynamic_mask(
        self: Any,
        hidden_states: Tensor,
        dt_states: Tensor,
        keep_window_size: int = 2048,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """(batch, heads, queries, keys) of dt_states (batch, heads, keys) and a mask (batch, 1, queries, keys)."""
        queries, keys = hidden_states.shape[1], dt_states.shape[-1]
        if not symbolic(keys):
            return NotImplemented
        least = torch.finfo(hidden_states.dtype).min
        weights = dt_states[:, :, None, :].expand(-1, -1, queries, -1)
        if isinstance(attention_mask, Tensor):
            seen = attention_mask[:, :, :, :keys]
            weights = weights.masked_fill(~seen if seen.dtype == torch.bool else seen != 0, least)
        # Padded by more than the window, so that there is a smallest of the window's in a short text too.
        padded = torch.nn.functional.pad(weights, (0, keep_window_size), value=float("-inf"))
        best = torch.topk(padded, keep_window_size, dim=-1).indices
        kept = torch.zeros_like(padded).scatter(-1, best, 1.0)[..., :keys]
        short = as_tensor(keys, torch.int64) <= keep_window_size
        return weights.masked_fill((kept == 0.0) & ~short, least)
