"""transformers' decoders without a cache, tiny: any length, right-padded masks; attention, experts, state spaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.case import Case
from benchmarks.transformers_models import TEXT, ids, text

LIBRARIES = ("transformers",)
LEFT_OUT = {
    "ernie4_5, seed_oss, hunyuan, arcee, exaone4 and other relatives": "share their bodies with llama or qwen",
    "kimi_linear, longcat_flash, zamba, nemotron_h": "bodies of parts that are cases already; slow to build",
}
BASE = dict(TEXT, num_key_value_heads=2, head_dim=8)
MOE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, head_dim=4,
              num_key_value_heads=4, n_routed_experts=4, n_group=2, topk_group=1, n_shared_experts=1,
              first_k_dense_replace=1, moe_intermediate_size=16, num_experts_per_tok=2)  # fmt: skip
LINEAR = dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=8, linear_value_head_dim=8, shared_expert_intermediate_size=16)  # fmt: skip
MAMBA = dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4)
GEMMA3N = dict(vocab_size_per_layer_input=99, hidden_size_per_layer_input=8, num_kv_shared_layers=0)
SLIDING = dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])


def decoder(kind: str, **options: Any) -> Callable[[], Case]:
    return text("AutoModelForCausalLM", kind, "logits", base=BASE, call=dict(use_cache=False), **options)


def alone(kind: str, **options: Any) -> Callable[[], Case]:
    """A state space model: ids only."""
    return decoder(kind, names="input_ids", make=lambda b, n: (ids(b, n),), **options)


CASES: dict[str, Callable[[], Case]] = {
    "gpt2": decoder("gpt2"),
    "gpt2_classifier": text("AutoModelForSequenceClassification", "gpt2", "logits", base=BASE,
                            call=dict(use_cache=False)),
    "gpt_neo": decoder("gpt_neo", num_layers=2, attention_types=[[["global", "local"], 1]], window_size=4,
                       num_hidden_layers=...),
    "gpt_neox": decoder("gpt_neox"),
    "gptj": decoder("gptj", rotary_dim=4),
    "gpt_bigcode": decoder("gpt_bigcode"),
    "codegen": decoder("codegen", rotary_dim=4),
    "openai_gpt": text("AutoModelForCausalLM", "openai-gpt", "logits"),
    "opt": decoder("opt", ffn_dim=64, word_embed_proj_dim=16),
    "bloom": decoder("bloom"),
    "mpt": decoder("mpt"),
    "falcon_alibi": decoder("falcon", alibi=True, head_dim=...),
    "falcon_rotary": decoder("falcon", head_dim=..., new_decoder_architecture=True, num_kv_heads=2),
    "llama": decoder("llama"),
    "llama_eager": decoder("llama", attn_implementation="eager"),
    "llama_scaled_rope": decoder("llama", rope_parameters=dict(
        rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)),
    "llama_dynamic_rope": decoder("llama", max_position_embeddings=8, rope_parameters=dict(
        rope_type="dynamic", rope_theta=1e4, factor=2.0)),
    "llama4": decoder("llama4_text", intermediate_size_mlp=64, attention_chunk_size=4, **MOE),
    "mistral_sliding": decoder("mistral", sliding_window=4),
    "mixtral": decoder("mixtral", **MOE),
    "qwen2": decoder("qwen2"),
    "qwen2_moe": decoder("qwen2_moe", shared_expert_intermediate_size=16, **MOE),
    "qwen3": decoder("qwen3"),
    "qwen3_moe": decoder("qwen3_moe", **MOE),
    "qwen3_next": decoder("qwen3_next", **{**MOE, **LINEAR}),
    "qwen3_5": decoder("qwen3_5_text", **LINEAR),
    "gemma": decoder("gemma"),
    "gemma2": decoder("gemma2", **SLIDING),
    "gemma3": decoder("gemma3_text", **SLIDING),
    "gemma3n": decoder("gemma3n_text", laurel_rank=8, altup_num_inputs=2, **GEMMA3N, **SLIDING),
    "gemma4": decoder("gemma4_text", global_head_dim=8, **GEMMA3N, **SLIDING),
    "phi": decoder("phi", partial_rotary_factor=0.5),
    "phi3_longrope": decoder("phi3", original_max_position_embeddings=8, rope_parameters=dict(
        rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 4, long_factor=[1.0, 1.5, 2.0, 3.0],
        original_max_position_embeddings=8)),
    "phimoe": decoder("phimoe", **MOE),
    "stablelm": decoder("stablelm"),
    "starcoder2": decoder("starcoder2", sliding_window=4),
    "persimmon": decoder("persimmon"),
    "nemotron": decoder("nemotron"),
    "cohere": decoder("cohere"),
    "cohere2": decoder("cohere2", **SLIDING),
    "olmo2": decoder("olmo2"),
    "olmoe": decoder("olmoe", **MOE),
    "olmo_hybrid": decoder("olmo_hybrid"),
    "granite": decoder("granite"),
    "granitemoe": decoder("granitemoe", **MOE),
    "deepseek_v2": decoder("deepseek_v2", **LATENT),
    "deepseek_v3": decoder("deepseek_v3", **LATENT),
    "gpt_oss": decoder("gpt_oss", **SLIDING, **MOE),
    "dots1": decoder("dots1", **{**LATENT, "head_dim": 8}),
    "jetmoe": decoder("jetmoe", **MOE),
    "minimax": decoder("minimax", block_size=4, layer_types=["linear_attention", "full_attention"], **MOE),
    "dbrx": decoder("dbrx", d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
                    attn_config=dict(kv_n_heads=2, clip_qkv=8, rope_theta=1e4),
                    ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2, hidden_size=32),
                    hidden_size=..., num_attention_heads=..., num_hidden_layers=..., num_key_value_heads=...,
                    max_position_embeddings=..., head_dim=...),
    "glm": decoder("glm"),
    "glm4": decoder("glm4"),
    "smollm3": decoder("smollm3"),
    "helium": decoder("helium"),
    "diffllama": decoder("diffllama"),
    "bitnet": decoder("bitnet"),
    "doge": decoder("doge", keep_window_size=8),
    "apertus": decoder("apertus"),
    "nanochat": decoder("nanochat"),
    "hrm_text": decoder("hrm_text"),
    "modernbert_decoder": decoder("modernbert-decoder", local_attention=4, global_attn_every_n_layers=2),
    "ctrl": decoder("ctrl", dff=64),
    "xglm": decoder("xglm", ffn_dim=64),
    "biogpt": decoder("biogpt"),
    "mamba": alone("mamba", state_size=8),
    "mamba_masked": decoder("mamba", state_size=8),
    "mamba2": alone("mamba2", num_heads=8, head_dim=8, state_size=8, n_groups=1, chunk_size=4),
    "falcon_mamba": alone("falcon_mamba", state_size=8),
    "falcon_h1": decoder("falcon_h1", mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
                         mamba_chunk_size=4),
    "jamba": decoder("jamba", attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                     use_mamba_kernels=False, mamba_d_state=8, **MOE),
    "bamba": decoder("bamba", attn_layer_indices=[1], **MAMBA),
    "granitemoehybrid": decoder("granitemoehybrid", layer_types=["mamba", "attention"],
                                shared_intermediate_size=16, **MAMBA, **MOE),
    "rwkv": alone("rwkv"),
    "recurrent_gemma": decoder("recurrent_gemma", block_types=["recurrent", "attention"], lru_width=32,
                               attention_window_size=4),
    "xlstm": alone("xlstm", num_heads=4, qk_dim_factor=1.0, v_dim_factor=1.0, chunk_size=4),
    "lfm2": decoder("lfm2", layer_types=["conv", "full_attention"]),
    "reformer_lm": decoder("reformer", attn_layers=["local", "lsh"], axial_pos_embds=False, is_decoder=True,
                           local_attn_chunk_length=4, lsh_attn_chunk_length=4, num_hashes=1, num_buckets=2,
                           hash_seed=0, attention_head_size=8, feed_forward_size=64, num_hidden_layers=...,
                           intermediate_size=..., sizes=((2, 16), (3, 16), (1, 8), (3, 40))),
}  # fmt: skip
