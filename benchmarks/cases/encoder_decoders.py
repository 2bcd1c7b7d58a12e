"""transformers' encoder-decoders of text, tiny: two lengths, a padded source; and their decoders with a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case
from benchmarks.transformers_models import TEXT, ids, made, padded, sized, text

LIBRARIES = ("transformers",)
LEFT_OUT = {"mt5, mvp, blenderbot-small": "share their bodies with t5, bart, blenderbot"}
LAYERS = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=99, max_position_embeddings=64, pad_token_id=0,
              bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=2)  # fmt: skip
T5 = dict(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=99, pad_token_id=0,
          eos_token_id=2, decoder_start_token_id=0)  # fmt: skip
GEMMA = dict(TEXT, num_key_value_heads=2, head_dim=8, layer_types=["sliding_attention", "full_attention"],
             sliding_window=4)  # fmt: skip
# Batch, source, target: the example first.
PAIRS = ((2, 9, 5), (3, 9, 5), (1, 1, 1), (3, 20, 12), (2, 4, 8), (1, 16, 3))
# Batch, source, new tokens, past.
STEPS = ((2, 9, 3, 4), (3, 9, 1, 4), (1, 4, 1, 1), (2, 20, 5, 0), (3, 2, 1, 11))


def pair(batch: int, source: int, target: int) -> Args:
    return ids(batch, source), padded(batch, source), ids(batch, target)


def seq2seq(kind: str, auto: str = "AutoModelForSeq2SeqLM", **options: Any) -> Callable[[], Case]:
    source, target = {0: "batch", 1: "source"}, {0: "batch", 1: "target"}
    given: dict[str, Any] = dict(base=LAYERS, names="input_ids attention_mask decoder_input_ids", make=pair,
                                 sizes=PAIRS, shapes=(source, source, target), call=dict(use_cache=False))  # fmt: skip
    return text(auto, kind, "logits", **{**given, **options})


class CachedDecoder(nn.Module):
    """Logits and present keys and values of a decoder, from the encoder's answer and the past of both attentions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, encoded: Tensor, past: list[Tensor]) -> list[Tensor]:
        from transformers import EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        cache = EncoderDecoderCache([tuple(past[i : i + 4]) for i in range(0, len(past), 4)])
        output = self.model(
            decoder_input_ids=input_ids,
            attention_mask=attention_mask,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoded),
            past_key_values=cache,
            use_cache=True,
        )
        layers = output.past_key_values.self_attention_cache.layers
        return [output.logits, *(t for layer in layers for t in (layer.keys, layer.values))]


def cached(kind: str, **options: Any) -> Callable[[], Case]:
    def make(batch: int, source: int, tokens: int, past: int) -> Args:
        states = [torch.randn(batch, 4, length, 8) for _ in range(2) for length in (past, past, source, source)]
        return ids(batch, tokens), padded(batch, source), torch.randn(batch, source, 32), states

    own, cross = {0: "batch", 2: "past"}, {0: "batch", 2: "source"}
    shapes = ({0: "batch", 1: "tokens"}, {0: "batch", 1: "source"}, {0: "batch", 1: "source"}, [own, own, cross,
              cross] * 2)  # fmt: skip
    return lambda: sized(CachedDecoder(made("AutoModelForSeq2SeqLM", kind, **options)), make, STEPS, shapes)


CASES: dict[str, Callable[[], Case]] = {
    "t5": seq2seq("t5", base=T5),
    "t5_gated": seq2seq("t5", base=T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "umt5": seq2seq("umt5", base=T5),
    "switch_transformers": seq2seq("switch_transformers", base=T5, num_experts=4, num_sparse_encoder_layers=1,
                                   num_sparse_decoder_layers=1, expert_capacity=64),
    "longt5_local": seq2seq("longt5", base=T5, local_radius=3, encoder_attention_type="local"),
    "longt5_global": seq2seq("longt5", base=T5, local_radius=3, global_block_size=4,
                             encoder_attention_type="transient-global"),
    "bart": seq2seq("bart", base=LAYERS),
    "bart_classifier": text("AutoModelForSequenceClassification", "bart", "logits", base=LAYERS,
                            make=lambda b, n: (torch.cat([ids(b, n), torch.full((b, 1), 2)], 1),
                                               padded(b, n + 1) * 0 + 1), call=dict(use_cache=False)),
    "mbart": seq2seq("mbart"),
    "plbart": seq2seq("plbart"),
    "pegasus": seq2seq("pegasus"),
    "pegasus_x": seq2seq("pegasus_x", block_size=4, num_global_tokens=2),
    "bigbird_pegasus": seq2seq("bigbird_pegasus", attention_type="original_full"),
    "blenderbot": seq2seq("blenderbot"),
    "marian": seq2seq("marian"),
    "m2m_100": seq2seq("m2m_100", max_position_embeddings=12),
    "nllb_moe": seq2seq("nllb-moe", num_experts=4, encoder_sparse_step=2, decoder_sparse_step=2, expert_capacity=64),
    "led": seq2seq("led", attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    "prophetnet": seq2seq("prophetnet", base=dict(
        hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
        num_decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=99,
        max_position_embeddings=64, pad_token_id=0, decoder_start_token_id=1)),
    "fsmt": seq2seq("fsmt", src_vocab_size=99, tgt_vocab_size=99, langs=["de", "en"]),
    "t5gemma": seq2seq("t5gemma", base=dict(encoder=GEMMA, decoder=GEMMA, vocab_size=99, pad_token_id=0,
                                            bos_token_id=1, eos_token_id=2)),
    "t5_cached": cached("t5", **T5),
    "bart_cached": cached("bart", **LAYERS),
    "mbart_cached": cached("mbart", **LAYERS),
    "marian_cached": cached("marian", **LAYERS),
    "pegasus_cached": cached("pegasus", **LAYERS),
    "m2m_100_cached": cached("m2m_100", **LAYERS),
}  # fmt: skip
