"""transformers' decoders with a cache: the past comes in as tensors and goes out longer.

The example has a past and several new tokens; judged also without a past (the prefill), with one token, and with pasts
over twice as long. Masks are padded on the left, as in generation. Cases named ``_step`` take one token at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case
from benchmarks.transformers_models import TEXT, ids, made, padded, sized

LIBRARIES = ("transformers",)
LEFT_OUT = {"mamba, rwkv, jamba and other recurrent models": "their caches hold states, not keys and values"}
BASE = dict(TEXT, num_key_value_heads=2, head_dim=8)
MOE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
SLIDING = dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
# Batch, new tokens, past.
SEVERAL = ((2, 3, 6), (3, 3, 6), (1, 1, 9), (2, 5, 0), (3, 1, 14), (2, 7, 2))
ONE = ((2, 1, 6), (3, 1, 1), (1, 1, 15), (3, 1, 7))


class Cached(nn.Module):
    """Logits and the present keys and values of a decoder, layer by layer, from ids, a mask and the past ones."""

    def __init__(self, model: nn.Module, config: Any = None) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> list[Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)), config=self.config)
        output = self.model(input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [t for layer in output.past_key_values.layers for t in (layer.keys, layer.values)]
        return [output.logits, *present]


def cached(
    kind: str,
    heads: int = 2,
    width: int | tuple[int, int] = 8,
    *,
    sizes: Sequence[tuple[int, ...]] = SEVERAL,
    window: bool = False,
    **options: Any,
) -> Callable[[], Case]:
    """heads, width: of the keys, and of the values where they differ. window: layers keep what their window needs."""

    def build() -> Case:
        model = made("AutoModelForCausalLM", kind, **{k: v for k, v in {**BASE, **options}.items() if v is not ...})
        widths = width if isinstance(width, tuple) else (width, width)

        def make(batch: int, tokens: int, past: int) -> Args:
            states = [torch.randn(batch, heads, past, w) for _ in range(model.config.num_hidden_layers) for w in widths]
            return ids(batch, tokens), padded(batch, past + tokens, left=True), states

        step = {} if sizes is ONE else {1: "tokens"}
        total = "past+1" if sizes is ONE else "past+tokens"
        states = [{0: "batch", 2: "past"}] * (2 * model.config.num_hidden_layers)
        shapes = ({0: "batch", **step}, {0: "batch", 1: total}, states)
        return sized(Cached(model, model.config if window else None), make, sizes, shapes)

    return build


CASES: dict[str, Callable[[], Case]] = {
    "gpt2": cached("gpt2", 4),
    "gpt2_step": cached("gpt2", 4, sizes=ONE),
    "gpt_neo": cached("gpt_neo", 4, num_layers=2, attention_types=[[["global", "local"], 1]], window_size=4,
                      num_hidden_layers=...),
    "gpt_neox": cached("gpt_neox", 4),
    "gptj": cached("gptj", 4, rotary_dim=4),
    "gpt_bigcode": cached("gpt_bigcode", 1),
    "codegen": cached("codegen", 4, rotary_dim=4),
    "opt": cached("opt", 4, ffn_dim=64, word_embed_proj_dim=32),
    "bloom": cached("bloom", 4),
    "mpt": cached("mpt", 4),
    "falcon": cached("falcon", 4, head_dim=..., new_decoder_architecture=True, num_kv_heads=2),
    "llama": cached("llama"),
    "llama_step": cached("llama", sizes=ONE),
    "llama_eager": cached("llama", attn_implementation="eager"),
    "mistral_sliding": cached("mistral", sliding_window=4),
    "mixtral": cached("mixtral", **MOE),
    "qwen2": cached("qwen2"),
    "qwen2_step": cached("qwen2", sizes=ONE),
    "qwen3": cached("qwen3"),
    "qwen3_moe": cached("qwen3_moe", **MOE),
    "gemma": cached("gemma"),
    "gemma2": cached("gemma2", **SLIDING),
    "gemma3": cached("gemma3_text", **SLIDING),
    "gemma3_window": cached("gemma3_text", window=True, **SLIDING, sizes=((2, 3, 3), (3, 3, 3), (1, 1, 2), (2, 5, 0))),
    "phi": cached("phi", partial_rotary_factor=0.5),
    "phi3": cached("phi3"),
    "stablelm": cached("stablelm"),
    "starcoder2": cached("starcoder2", sliding_window=4),
    "cohere": cached("cohere"),
    "olmo2": cached("olmo2"),
    "granite": cached("granite"),
    "deepseek_v3": cached("deepseek_v3", 1, (8, 4), q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
                          qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4, n_routed_experts=4, n_group=2,
                          topk_group=1, n_shared_experts=1, first_k_dense_replace=1, moe_intermediate_size=16,
                          num_experts_per_tok=2, head_dim=4),
    "gpt_oss": cached("gpt_oss", **SLIDING, **MOE),
    "smollm3": cached("smollm3"),
    "glm4": cached("glm4"),
    "biogpt": cached("biogpt", 4),
    "xglm": cached("xglm", 4, ffn_dim=64),
}  # fmt: skip
