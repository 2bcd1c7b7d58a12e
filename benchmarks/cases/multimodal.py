"""transformers' models of images and texts (and sounds), tiny; a text of any length, padded, an image of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.case import Args, Case
from benchmarks.transformers_models import TEXT, Keyword, ids, made, padded, sized

LIBRARIES = ("transformers",)
LEFT_OUT = {
    "layoutlmv2": "needs detectron2",
    "vilt": "draws at random in which order it takes the patches, in a Python loop over the images",
    "relatives of llava": "share its body",
}
TOWER = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
             patch_size=8)  # fmt: skip
WORDS = dict(TEXT, projection_dim=16)
LANGUAGE = dict(TEXT, num_key_value_heads=2, head_dim=8, model_type="llama")
# Batch, length of the text.
LENGTHS = ((2, 7), (3, 7), (1, 1), (3, 16))
IMAGE, LENGTH = {0: "batch"}, {0: "batch", 1: "length"}
MARK = 98  # the token that stands for an image's patch


def image_text(batch: int, length: int) -> Args:
    return torch.randn(batch, 3, 32, 32), ids(batch, length), padded(batch, length)


def marked(patches: int) -> Callable[..., Args]:
    """The text holds a token for each of the image's patches."""

    def make(batch: int, length: int) -> Args:
        text = torch.cat([torch.full((batch, patches), MARK), torch.randint(3, MARK, (batch, length))], dim=1)
        return torch.randn(batch, 3, 32, 32), text, padded(batch, patches + length)

    return make


def model(
    auto: str,
    kind: str,
    fields: str,
    *,
    names: str = "pixel_values input_ids attention_mask",
    make: Callable[..., Args] = image_text,
    sizes: Sequence[tuple[int, ...]] = LENGTHS,
    shapes: Any = (IMAGE, LENGTH, LENGTH),
    call: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[[], Case]:
    build = lambda: Keyword(made(auto, kind, **options), names.split(), fields.split(), **(call or {}))  # noqa: E731
    return lambda: sized(build(), make, sizes, shapes)


def speaker(kind: str, patches: int, auto: str = "AutoModelForImageTextToText", **options: Any) -> Callable[[], Case]:
    """A language model that reads an image among its tokens."""
    given = dict(make=marked(patches), call=dict(use_cache=False), image_token_id=MARK)
    return model(auto, kind, "logits", **{**given, **options})


def features(batch: int, length: int) -> Args:
    """lxmert, visual_bert: regions of an image."""
    return ids(batch, length), padded(batch, length), torch.randn(batch, 5, 24), torch.rand(batch, 5, 4)


def layout(batch: int, length: int) -> Args:
    corner = torch.randint(0, 400, (batch, length, 2))
    return *image_text(batch, length), torch.cat([corner, corner + 100], dim=-1)


def caption(batch: int, length: int) -> Args:
    return torch.randn(batch, 3, 32, 32), ids(batch, length)


def several(batch: int, length: int) -> Args:
    """Images in a dimension of their own: one for each text."""
    pixels, *rest = marked(4)(batch, length)
    return (pixels[:, None], *rest)


EMBEDS = "logits_per_image text_embeds image_embeds"
CLIP = dict(text_config=WORDS, vision_config=dict(TOWER, projection_dim=16), projection_dim=16)
DECODER = dict(d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, vocab_size=99,
               max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
               decoder_start_token_id=1, model_type="trocr", cross_attention_hidden_size=32)  # fmt: skip
SEEN = dict(text_config=LANGUAGE, vision_config=dict(TOWER, model_type="clip_vision_model"))
SIGLIP = dict(TOWER, model_type="siglip_vision_model")
QFORMER = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, vocab_size=99,
               encoder_hidden_size=32, cross_attention_frequency=1)  # fmt: skip
OPT = dict(TEXT, ffn_dim=64, word_embed_proj_dim=32, model_type="opt")
PAIR = dict(names="pixel_values decoder_input_ids", make=caption, shapes=(IMAGE, LENGTH), call=dict(use_cache=False))

CASES: dict[str, Callable[[], Case]] = {
    "clip": model("CLIPModel", "clip", EMBEDS, **CLIP),
    "metaclip_2": model("AutoModel", "metaclip_2", EMBEDS, **CLIP),
    "siglip": model("SiglipModel", "siglip", EMBEDS, names="pixel_values input_ids", make=caption,
                    shapes=(IMAGE, LENGTH), text_config=dict(WORDS, projection_size=32), vision_config=TOWER),
    "chinese_clip": model("ChineseCLIPModel", "chinese_clip", EMBEDS, **CLIP),
    "altclip": model("AltCLIPModel", "altclip", EMBEDS, **{**CLIP, "text_config": dict(WORDS, project_dim=32)}),
    "clipseg": model("CLIPSegForImageSegmentation", "clipseg", "logits", extract_layers=[0, 1], reduce_dim=16,
                     decoder_num_attention_heads=2, decoder_intermediate_size=32, conditional_layer=0, **CLIP),
    "align": model("AlignModel", "align", EMBEDS, text_config=TEXT, projection_dim=640),
    "owlvit": model("OwlViTModel", "owlvit", EMBEDS, call=dict(return_base_image_embeds=False), **CLIP),
    "groupvit": model("GroupViTModel", "groupvit", EMBEDS, text_config=WORDS, projection_dim=16,
                      projection_intermediate_dim=16, vision_config=dict(
                          hidden_size=32, intermediate_size=64, depths=[1, 1], num_hidden_layers=2,
                          num_group_tokens=[4, 0], num_output_groups=[4, 4], num_attention_heads=4, image_size=32,
                          patch_size=8)),
    "flava": model("FlavaModel", "flava", "text_embeddings image_embeddings multimodal_embeddings", text_config=TEXT,
                   image_config=TOWER, multimodal_config=dict(hidden_size=32, num_hidden_layers=1,
                   num_attention_heads=4, intermediate_size=64), hidden_size=32, projection_dim=16),
    "bridgetower": model("BridgeTowerModel", "bridgetower", "text_features image_features pooler_output",
                         text_config=dict(TEXT), vision_config=dict(hidden_size=64, num_hidden_layers=2, patch_size=8,
                         image_size=32, num_channels=3), hidden_size=32, num_attention_heads=4, num_hidden_layers=2),
    "blip": model("BlipForImageTextRetrieval", "blip", "itm_score", text_config=dict(TEXT, encoder_hidden_size=32),
                  vision_config=TOWER, projection_dim=16, image_text_hidden_size=16),
    "blip_caption": model("BlipForConditionalGeneration", "blip", "logits",
                          text_config=dict(TEXT, encoder_hidden_size=32), vision_config=TOWER, projection_dim=16),
    "blip2": speaker("blip-2", 4, vision_config=TOWER, qformer_config=QFORMER, text_config=OPT, num_query_tokens=4,
                     image_token_index=MARK),
    "instructblip": model("InstructBlipForConditionalGeneration", "instructblip", "logits",
                          names="pixel_values input_ids attention_mask qformer_input_ids",
                          make=lambda b, n: (*marked(4)(b, n), ids(b, n)),
                          shapes=(IMAGE, {0: "batch", 1: "4+length"}, {0: "batch", 1: "4+length"}, LENGTH),
                          call=dict(use_cache=False), vision_config=TOWER, qformer_config=QFORMER, text_config=OPT,
                          num_query_tokens=4, image_token_index=MARK),
    "llava": speaker("llava", 16, **SEEN),
    "vipllava": speaker("vipllava", 16, vision_feature_layers=[-1, -2], **SEEN),
    "paligemma": speaker("paligemma", 16, text_config=dict(LANGUAGE, model_type="gemma"), vision_config=SIGLIP,
                         projection_dim=32, hidden_size=32),
    "gemma3": speaker("gemma3", 4, text_config=dict(LANGUAGE, model_type="gemma3_text", sliding_window=8),
                      vision_config=SIGLIP, mm_tokens_per_image=4),
    "idefics3": speaker("idefics3", 4, text_config=LANGUAGE, scale_factor=2, vision_config=dict(
        TOWER, model_type="idefics3_vision"), make=several),
    "aya_vision": speaker("aya_vision", 4, text_config=dict(LANGUAGE, model_type="cohere2"), vision_config=SIGLIP,
                          downsample_factor=2, adapter_layer_norm_eps=1e-6),
    "got_ocr2": speaker("got_ocr2", 4, text_config=dict(LANGUAGE, model_type="qwen2"), vision_config=dict(
        hidden_size=32, output_channels=16, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=4,
        window_size=3, global_attn_indexes=[1], mlp_dim=64), image_token_index=MARK),
    "git": model("GitForCausalLM", "git", "logits", call=dict(use_cache=False), vision_config=TOWER, **TEXT),
    "vision_text_dual": model("VisionTextDualEncoderModel", "vision-text-dual-encoder", EMBEDS, vision_config=dict(
        TOWER, model_type="vit"), text_config=dict(TEXT, model_type="bert"), projection_dim=16),
    "lxmert": model("LxmertModel", "lxmert", "language_output vision_output pooled_output",
                    names="input_ids attention_mask visual_feats visual_pos", make=features,
                    shapes=(LENGTH, LENGTH, IMAGE, IMAGE), l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=24,
                    **{k: v for k, v in TEXT.items() if k != "num_hidden_layers"}),
    "visual_bert": model("VisualBertModel", "visual_bert", "last_hidden_state",
                         names="input_ids attention_mask visual_embeds visual_attention_mask",
                         make=lambda b, n: (*features(b, n)[:3], torch.ones(b, 5)),
                         shapes=(LENGTH, LENGTH, IMAGE, IMAGE), visual_embedding_dim=24, **TEXT),
    "layoutlmv3": model("LayoutLMv3Model", "layoutlmv3", "last_hidden_state",
                        names="pixel_values input_ids attention_mask bbox", make=layout,
                        shapes=(IMAGE, LENGTH, LENGTH, LENGTH), input_size=32, patch_size=8, coordinate_size=6,
                        shape_size=4, max_2d_position_embeddings=1024, **TEXT),
    "trocr": model("VisionEncoderDecoderModel", "vision-encoder-decoder", "logits", encoder=dict(
        TOWER, model_type="deit"), decoder=DECODER, **PAIR),
    "donut": model("VisionEncoderDecoderModel", "vision-encoder-decoder", "logits", encoder=dict(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4,
        model_type="donut-swin"), decoder=DECODER, **PAIR),
    "mgp_str": model("MgpstrForSceneTextRecognition", "mgp-str", "logits", names="pixel_values",
                     make=lambda b: (torch.randn(b, 3, 32, 64),), sizes=((2,), (3,), (1,)), shapes=(IMAGE,),
                     image_size=[32, 64], patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                     max_token_length=5, num_character_labels=9, num_bpe_labels=9, num_wordpiece_labels=9),
    "pix2struct": model("Pix2StructForConditionalGeneration", "pix2struct", "logits",
                        names="flattened_patches attention_mask decoder_input_ids",
                        make=lambda b, p, n: (torch.cat([torch.randint(1, 5, (b, p, 2)).float(),
                                              torch.randn(b, p, 48)], -1), padded(b, p).float(), ids(b, n)),
                        sizes=((2, 9, 5), (3, 9, 5), (1, 4, 1), (3, 20, 12)),
                        shapes=({0: "batch", 1: "patches"}, {0: "batch", 1: "patches"}, LENGTH),
                        call=dict(use_cache=False),
                        text_config=dict(hidden_size=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=99),
                        vision_config=dict(hidden_size=32, patch_embed_hidden_size=48, d_ff=64, d_kv=8,
                                           num_hidden_layers=2, num_attention_heads=4)),
    "clap": model("ClapModel", "clap", "logits_per_audio text_embeds audio_embeds",
                  names="input_features input_ids attention_mask",
                  make=lambda b, n: (torch.randn(b, 1, 60, 16), ids(b, n), padded(b, n)), text_config=TEXT,
                  audio_config=dict(spec_size=32, num_mel_bins=16, window_size=2, patch_size=4, patch_stride=(4, 4),
                                    hidden_size=32, patch_embeds_hidden_size=16, depths=[1, 1],
                                    num_attention_heads=[2, 2], num_hidden_layers=2), projection_dim=16),
}  # fmt: skip
