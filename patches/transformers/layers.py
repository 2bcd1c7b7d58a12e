"""Layers of transformers' models in the form that onnxruntime has kernels for: attention, RMS normalization.

Heads that share keys reach the graph as they are; texts packed in one row attend to themselves; the mask of a sliding
window spans as many keys as there are, before and after the window is full.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.decisions.ask import calling_frame
from onnxpatch.formulas.layer_nodes import normalized_by_rms
from onnxpatch.formulas.symbolic import as_tensor, symbolic
from onnxpatch.patching.proof import computing, randomised


def _grouped() -> torch.nn.Module:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=4)
    config._attn_implementation = "sdpa"
    return computing(
        lambda attention, x, mask: attention(x, (torch.ones_like(x[..., :4]),) * 2, mask)[0], LlamaAttention(config, 0)
    )


@op(
    "transformers.modeling_utils.AttentionInterface.get_interface",
    name="transformers-attention",
    why="repeat_kv: keys and values are copied for every query head (Expand of the whole cache), and an idle reshape "
    "keeps the heads from being merged",
    link="https://huggingface.co/docs/transformers/attention_interface",
    requires=("transformers>=5",),
    leaner=("dynamo", "trace"),
    tries=lambda b, n: (torch.randn(b, n, 16), torch.rand(b, 1, n, n) > 0.3),
    sizes=((2, 5), (3, 8), (1, 2)),
    case=_grouped,
    beside=("attention",),
    opset=23,
)
def get_interface(
    original: Callable[..., object], interface: Any, attn_implementation: str | None, default: Callable[..., object]
) -> object:
    """Returns `attention_forward` for "sdpa", unless somebody has registered another function under that name, and for
    "eager" where a layer would split its sequence, as `packed-attention` says."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if attn_implementation == "eager" and default.__name__ == "eager_attention_forward":
        frame = calling_frame(1)
        return attention_forward if frame is not None and "cu_seqlens" in frame.f_locals else NotImplemented
    if attn_implementation != "sdpa" or interface.get("sdpa") is not sdpa_attention_forward:
        return NotImplemented
    return attention_forward


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """(batch, heads, length, features) to (batch, length, heads, features), as transformers' sdpa_attention_forward."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if any(others.get(name) is not None for name in ("position_bias", "cache", "softcap")):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, is_causal, **others)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if (bounds := others.get("cu_seq_lens_q")) is not None and attention_mask is None:
        attention_mask = _within_parts(bounds, query.shape[2])
    # In this order: with one query every key is seen, and where a mask is given, the size is not asked for.
    causal = is_causal and attention_mask is None and query.shape[2] > 1
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, is_causal=causal, scale=scaling,
        enable_gqa=getattr(module, "num_key_value_groups", 1) > 1,
    )  # fmt: skip
    return output.transpose(1, 2).contiguous(), None


def _packed() -> torch.nn.Module:
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import VisionAttention

    config = Qwen2VLVisionConfig(embed_dim=8, num_heads=2)
    layers = []
    for implementation in ("sdpa", "eager"):
        config = copy.copy(config)
        config._attn_implementation = implementation
        layers.append(VisionAttention(config))
    return computing(
        lambda one, other, x, bounds: [layer(x, bounds, (torch.ones_like(x[:, :4]),) * 2) for layer in (one, other)],
        *layers,
    )


def _parts(*lengths: int) -> tuple[Tensor, Tensor]:
    return torch.randn(sum(lengths), 8), torch.tensor((0, *lengths)).cumsum(0)


@op(
    "transformers.utils.generic.is_flash_attention_requested",
    name="packed-attention",
    why="torch.split(query, lengths.tolist(), dim=2): attention within images or windows, as many as the example has",
    reason="'split'|data-dependent|static shape",
    link="https://github.com/huggingface/transformers/issues/32493",
    requires=("transformers>=5.10",),
    tries=_parts,
    sizes=((2, 5), (3, 1, 4), (6,)),
    case=_packed,
    beside=("transformers-attention", "attention"),
)
def packed_attention(original: Callable[..., bool], *args: object, **kwargs: object) -> bool:
    """True where a layer would split its sequence: `attention_forward` takes the bounds of the parts instead."""
    # 1: past the stand-in that calls this.
    frame = calling_frame(1)
    asking = frame.f_locals if frame is not None else {}
    return (asking.get("attention_interface") is attention_forward and "cu_seqlens" in asking) or NotImplemented


def _within_parts(bounds: Tensor, length: Any) -> Tensor:
    """(length, length): whether two places are in one part. bounds: where parts begin, and where the last one ends."""
    part = (torch.arange(length, device=bounds.device)[:, None] >= bounds[1:]).sum(1)
    return part[:, None] == part


class _Decoder(torch.nn.Module):
    """One layer of a decoder with a window of four tokens, of which its cache keeps three."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import MistralConfig, MistralModel

        self.config = MistralConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                                    num_key_value_heads=2, head_dim=4, vocab_size=9, sliding_window=4)  # fmt: skip
        self.decoder = randomised(MistralModel(self.config))

    def forward(self, x: Tensor, mask: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from transformers import DynamicCache

        cache = DynamicCache([(key, value)], config=self.config)
        return self.decoder(inputs_embeds=x, attention_mask=mask, past_key_values=cache).last_hidden_state


def _texts() -> list[tuple[Tensor, ...]]:
    made = []
    # In the example the window of 4 is not full; 7 past tokens overfill it.
    for batch, tokens, past in ((2, 3, 2), (2, 2, 7), (1, 5, 4), (3, 2, 1)):
        mask = torch.ones(batch, past + tokens, dtype=torch.int64)
        mask[0, 0] = 0
        made.append((torch.randn(batch, tokens, 8), mask, *(torch.randn(batch, 2, past, 4) for _ in range(2))))
    return made


@patch(
    "transformers.cache_utils.DynamicSlidingWindowLayer.get_mask_sizes",
    name="sliding-cache",
    why="if cumulative_length >= sliding_window: exported with a window that is not full, the mask outgrows the keys",
    link="https://github.com/huggingface/transformers/issues/37574",
    when=When(requires=("transformers>=5",), exporters=("dynamo", "trace")),
    proof=Proof(
        build=_Decoder,
        inputs=_texts,
        dynamic_shapes=({0: "b", 1: "t"}, {0: "b", 1: "past+t"}, {0: "b", 2: "past"}, {0: "b", 2: "past"}),
        fails=("dynamo", "trace"),
        reason="broadcast an axis|invalid index|relative error",
    ),
)
def sliding_mask_sizes(original: object, layer: Any, query_length: Any) -> tuple[Any, Any]:
    """(length, offset) of the keys that the mask spans: at most `sliding_window - 1` old ones, and the new."""
    seen = layer.cumulative_length
    if not symbolic(seen):
        return NotImplemented
    # A new token is itself one of its window.
    kept = layer.sliding_window - 1
    # min and max in place of the `if`, so that both cases are in the graph.
    if isinstance(seen, torch.SymInt):
        return torch.sym_min(seen, kept) + query_length, torch.sym_max(seen - kept, 0)
    seen = as_tensor(seen, torch.int64)
    return seen.clamp(max=kept) + query_length, (seen - kept).clamp(min=0)


# ------------------------------------------------------------------ RMS normalization
WRITTEN_FOR = "transformers 5.23.0"


def _norm() -> nn.Module:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    norm = LlamaRMSNorm(6)
    nn.init.normal_(norm.weight)
    return norm


@patch(
    "transformers.models.llama.modeling_llama.LlamaRMSNorm",
    name="transformers-rms-norm",
    why="Pow, ReduceMean, Sqrt, Reciprocal and two Mul for each normalization: onnxruntime fuses nothing of it, "
    "since it looks for a division",
    when=When(
        # Of Llama, of Olmo, which multiplies by the weight before it returns to half precision, and of T5.
        bodies={
            "forward": {
                KnownBody("9635bcd843f3", WRITTEN_FOR),
                KnownBody("eef4e978a32a", WRITTEN_FOR),
                KnownBody("3152525beceb", WRITTEN_FOR),
            }
        }
    ),
    proof=Proof(
        build=_norm, inputs=lambda: [(torch.randn(2, 5, 6),), (torch.randn(3, 8, 6),)], leaner=("dynamo", "trace")
    ),
)
class _RMSNorm:
    """Computes x / sqrt(mean(x^2) + eps), times the weight. Half precision is left as it is, since the models round in
    different orders there."""

    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Any:
        if hidden_states.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return NotImplemented
        return normalized_by_rms(hidden_states, self.weight, self.variance_epsilon)
