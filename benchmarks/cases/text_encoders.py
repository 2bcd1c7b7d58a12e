"""transformers' text encoders, tiny: any length, right-padded masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.case import Args, Case
from benchmarks.transformers_models import ids, ids_and_mask, padded, text

LIBRARIES = ("transformers",)
LEFT_OUT = {
    "camembert, data2vec-text, ernie, xlm-roberta and other relatives": "share the body of bert or roberta",
    "mra": "approximates with kernels of its own that are compiled for CUDA",
}
BLOCKS = ((2, 16), (3, 16), (1, 4), (3, 36), (2, 8))  # the models that downsample the text


def encoder(kind: str, **options: object) -> Callable[[], Case]:
    return text("AutoModel", kind, **options)  # type: ignore[arg-type]


def with_boxes(batch: int, length: int) -> Args:
    corner = torch.randint(0, 400, (batch, length, 2))
    return *ids_and_mask(batch, length), torch.cat([corner, corner + torch.randint(1, 500, corner.shape)], dim=-1)


def with_unit_boxes(batch: int, length: int) -> Args:
    tokens, mask, boxes = with_boxes(batch, length)
    return tokens, mask, boxes / 1000


def with_types(batch: int, length: int) -> Args:
    """A question, then an answer: token types of both kinds."""
    types = (torch.arange(length) >= length // 2).long().expand(batch, length).contiguous()
    return *ids_and_mask(batch, length), types


def with_permutation(batch: int, length: int) -> Args:
    return ids(batch, length), padded(batch, length).float()


BOXES = dict(names="input_ids attention_mask bbox", make=with_boxes)
TYPES = dict(names="input_ids attention_mask token_type_ids", make=with_types)
FUNNEL: dict[str, Any] = dict(
    block_sizes=[1, 1], block_repeats=[1, 1], d_head=8, n_head=4, d_inner=64, sizes=BLOCKS, num_hidden_layers=...,
    max_position_embeddings=...,
)  # fmt: skip
T5: dict[str, Any] = dict(
    d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, hidden_size=..., num_hidden_layers=...,
    num_attention_heads=..., intermediate_size=..., max_position_embeddings=...,
)  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    "bert": encoder("bert", **TYPES),
    "bert_masked_lm": text("AutoModelForMaskedLM", "bert", "logits"),
    "bert_classifier": text("AutoModelForSequenceClassification", "bert", "logits"),
    "albert": encoder("albert", embedding_size=16),
    "roberta": encoder("roberta"),
    "roberta_prelayernorm": encoder("roberta-prelayernorm"),
    "xlm_roberta_xl": encoder("xlm-roberta-xl"),
    "xmod": encoder("xmod", languages=["en_XX", "de_DE"], default_language="en_XX"),
    "distilbert": encoder("distilbert"),
    "electra": encoder("electra", embedding_size=16),
    "deberta": encoder("deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "deberta_v2": encoder("deberta-v2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8,
                          share_att_key=True, norm_rel_ebd="layer_norm", conv_kernel_size=3),
    "mpnet": encoder("mpnet"),
    "mobilebert": encoder("mobilebert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "convbert": encoder("convbert", embedding_size=16, conv_kernel_size=3),
    "squeezebert": encoder("squeezebert", embedding_size=32),
    "funnel": text("FunnelModel", "funnel", **FUNNEL),
    "funnel_base": text("FunnelBaseModel", "funnel", **FUNNEL),
    "fnet": encoder("fnet", names="input_ids", make=lambda b, n: (ids(b, n),)),
    "nystromformer": encoder("nystromformer", num_landmarks=4, segment_means_seq_len=16, conv_kernel_size=3,
                             names="input_ids", make=lambda b, n: (ids(b, n),), sizes=((2, 16), (3, 16), (1, 16)),
                             shapes=({0: "batch"},)),
    "nystromformer_short": encoder("nystromformer", num_landmarks=32, segment_means_seq_len=32),
    "yoso": encoder("yoso"),
    "longformer": encoder("longformer", attention_window=4),
    "big_bird": encoder("big_bird", attention_type="original_full"),
    "big_bird_sparse": encoder("big_bird", attention_type="block_sparse", block_size=4, num_random_blocks=1,
                               max_position_embeddings=128, sizes=((2, 64), (3, 64), (1, 56), (2, 61), (1, 100))),
    "rembert": encoder("rembert", input_embedding_size=16),
    "roformer": encoder("roformer"),
    "roc_bert": encoder("roc_bert", shape_vocab_size=99, pronunciation_vocab_size=99, shape_embed_dim=16,
                        pronunciation_embed_dim=16),
    "megatron_bert": encoder("megatron-bert"),
    "ibert": encoder("ibert"),
    "esm": encoder("esm", position_embedding_type="rotary", token_dropout=True, mask_token_id=4),
    "esmc": encoder("esmc"),
    "nomic_bert": encoder("nomic_bert"),
    "modernbert": encoder("modernbert", local_attention=4, global_attn_every_n_layers=2),
    "eurobert": encoder("eurobert"),
    "gte": encoder("gte"),
    "jina_embeddings_v3": encoder("jina_embeddings_v3"),
    "ultrabert": encoder("ultrabert"),
    "luke": encoder("luke", entity_vocab_size=20, entity_emb_size=16),
    "layoutlm": encoder("layoutlm", **BOXES),
    "lilt": encoder("lilt", hidden_size=48, channel_shrink_ratio=2, **BOXES),
    "bros": encoder("bros", hidden_size=64, **{**BOXES, "make": with_unit_boxes}),
    "markuplm": encoder("markuplm", max_xpath_tag_unit_embeddings=20, max_xpath_subs_unit_embeddings=20,
                        tag_pad_id=19, subs_pad_id=19),
    "canine": encoder("canine", downsampling_rate=4, local_transformer_stride=8, upsampling_kernel_size=4,
                      sizes=((2, 16), (3, 16), (1, 8), (3, 40), (2, 12))),
    "tapas": encoder("tapas"),
    "splinter": encoder("splinter", **TYPES),
    "xlm": encoder("xlm"),
    "flaubert": encoder("flaubert"),
    "xlnet": encoder("xlnet", d_model=32, n_head=4, n_layer=2, d_inner=64, hidden_size=..., num_hidden_layers=...,
                     num_attention_heads=..., max_position_embeddings=..., make=with_permutation),
    "bert_generation": encoder("bert-generation"),
    "dpr": text("DPRQuestionEncoder", "dpr", "pooler_output"),
    "clip_text": encoder("clip_text_model"),
    "siglip_text": text("SiglipTextModel", "siglip_text_model", names="input_ids", make=lambda b, n: (ids(b, n),)),
    "t5_encoder": text("T5EncoderModel", "t5", **T5),
    "umt5_encoder": text("UMT5EncoderModel", "umt5", **T5),
    "reformer": encoder("reformer", attn_layers=["local", "lsh"], axial_pos_embds=False, local_attn_chunk_length=4,
                        lsh_attn_chunk_length=4, num_hashes=1, num_buckets=2, hash_seed=0, attention_head_size=8,
                        is_decoder=False, feed_forward_size=64, num_hidden_layers=..., intermediate_size=...,
                        sizes=((2, 16), (3, 16), (1, 8), (3, 40))),
    "perceiver": text("AutoModelForMaskedLM", "perceiver", "logits", names="inputs attention_mask", d_model=16,
                      num_latents=8, d_latents=32, num_blocks=1, num_self_attends_per_block=1,
                      num_self_attention_heads=2, num_cross_attention_heads=2, qk_channels=16, v_channels=32,
                      sizes=((2, 64), (1, 64), (3, 64)), shapes=({0: "batch"}, {0: "batch"})),
}  # fmt: skip
