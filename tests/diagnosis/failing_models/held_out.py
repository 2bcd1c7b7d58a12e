"""Models whose culprits were read off their sources before the doctor was asked: a sample that it was not written for.

Which of them fail was found by plain exports. Where one model has several parts at fault, each of them counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.diagnosis.failing_models.case import Ailing
from tests.diagnosis.failing_models.libraries import (
    BATCH,
    DINO,
    HW,
    IMAGES,
    SEQUENCE,
    SMALL,
    SWIN,
    Told,
    _image,
    _of,
    _random,
    _timm,
    _words,
)
from tests.diagnosis.failing_models.wrapped import Embedded, Fields, Flagged, Frames, Read

WORDS = {**SMALL, "intermediate_size": 64, "vocab_size": 20, "pad_token_id": 0}


def _part(model: str, config: str, path: str, wrap: Callable[[nn.Module], nn.Module], **options: Any) -> Any:
    """A submodule of a model."""

    def build() -> nn.Module:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**options))
        return wrap(_random(made).get_submodule(path))

    return build


def _masks(model: nn.Module) -> nn.Module:
    return Fields(model, "class_queries_logits masks_queries_logits")


def _vectors(length: int, width: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(2, length, width, generator=torch.Generator().manual_seed(1)),)


def _sound(length: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(2, 1, length, generator=torch.Generator().manual_seed(1)),)


CANINE = {**SMALL, "intermediate_size": 64, "max_position_embeddings": 64, "num_hash_functions": 2,
          "num_hash_buckets": 32, "local_transformer_stride": 8, "upsampling_kernel_size": 4}  # fmt: skip
FUNNEL = {"vocab_size": 20, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64,
          "num_decoder_layers": 1}  # fmt: skip
MAMBA = {"vocab_size": 20, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}
RWKV = {"vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}
EXPERTS = {**WORDS, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
LONG = {**WORDS, "attention_window": 4, "max_position_embeddings": 64}
T5 = {"vocab_size": 20, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "local_radius": 3}
SERIES = {"prediction_length": 4, "context_length": 8, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
          "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
          "feature_size": 32}  # fmt: skip
REFORMER = {"vocab_size": 20, "attention_head_size": 8, "num_attention_heads": 4, "hidden_size": 32,
            "feed_forward_size": 64, "attn_layers": ["local"], "axial_pos_embds": False, "is_decoder": False,
            "local_attn_chunk_length": 4, "max_position_embeddings": 64}  # fmt: skip
CODEC = {"num_filters": 4, "hidden_size": 8, "upsampling_ratios": [4, 2], "num_lstm_layers": 1, "codebook_dim": 8,
         "codebook_size": 8}  # fmt: skip
DPT = {**IMAGES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 16, 16],
       "fusion_hidden_size": 16}  # fmt: skip


def _depth(model: nn.Module) -> nn.Module:
    return Told(model, "predicted_depth")


def _logits(model: nn.Module) -> nn.Module:
    return Told(model, "logits")


def _one_image() -> tuple[Any, ...]:
    return (torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(1)),)


def _backbone(kind: str, **options: Any) -> dict[str, Any]:
    return {"model_type": kind, "out_indices": [1, 2, 3, 4], "depths": [1, 1, 1, 1], **options}


CONVNEXT = _backbone("convnext", hidden_sizes=[8, 16, 24, 32])
FOUR = _backbone("swin", image_size=64, patch_size=4, embed_dim=16, num_heads=[1, 2, 2, 4], window_size=4)
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1],
          "layer_type": "basic"}  # fmt: skip
DETR = {"model_type": "detr", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_queries": 5,
        "backbone_config": RESNET}  # fmt: skip
POOLED = {"hidden_size": 16, "use_auxiliary_head": False}
WINDOWED = {"pretrain_image_size": 32, "window_size": 2, "window_block_indices": [0], **DINO, "image_size": 64,
            "use_relative_position_embeddings": True}  # fmt: skip
V2 = {"image_size": 64, "width_multiplier": 0.25, "base_attn_unit_dims": [32, 64, 96]}

# Swin: the patches pad to their size, the halving to an even grid, the blocks cut what they padded off again.
PARTS = ("*.embeddings.patch_embeddings", "*.layers.?.downsample", "*.layers.?.blocks.?")
PADS = ("self.patch_size[0] != 0", "should_pad", "was_padded", "height % 2", "width % 2", "pad_values[", "window_size")
NATIVE = "height == width"
STRUCTURE = "model.encoder.attention_structure.init_attention_inputs()"
RWKV_LINES = ("rwkv, layer_state = rwkv_linear_attention(",)
PADDED = ("if length <= max_pad", "max_pad = max(", "nn.functional.pad(")
BLOCKS = ("model.encoder.block.?.layer.0.LocalSelfAttention",)
MASKED = ("if x.shape[dim] % block_len", "_split_into_blocks(", "if attention_mask is None and not")
SHARED = {"others": ("must_pad_to_match_chunk_length", "do_standard_self_attention", "<= self.chunk_length"),
          "paths": ("model.encoder.layers.?.attention.self_attention",)}  # fmt: skip


def _held(
    name: str, build: Any, args: Any, dynamic: Any, truth: tuple[str, str, str], exporter: str = "dynamo", **more: Any
) -> Ailing:
    """truth: path, status and a part of the line."""
    path, status, code = truth
    library = "timm" if name.startswith("timm-") else "transformers"
    return Ailing(name, build, args, dynamic, exporter, path, status, code, needs=library, **more)


_CANINE = _of("CanineModel", "CanineConfig", **CANINE)
_FUNNEL = _of("FunnelModel", "FunnelConfig", **FUNNEL)
_RWKV = _of("RwkvModel", "RwkvConfig", **RWKV)
_MIXTRAL = _of("MixtralModel", "MixtralConfig", experts_implementation="eager", **EXPERTS)
_LONGT5 = _of("LongT5EncoderModel", "LongT5Config", **T5)
_AUTOFORMER = _part("AutoformerModel", "AutoformerConfig", "encoder", Embedded, **SERIES)
_REFORMER = _of("ReformerModel", "ReformerConfig", **REFORMER)
_ENCODEC = _part("EncodecModel", "EncodecConfig", "encoder", lambda encoder: encoder, **CODEC)
_MASKED_SWIN = _of("MaskFormerSwinModel", "MaskFormerSwinConfig", **SWIN)
_UPERNET = ("UperNetForSemanticSegmentation", "UperNetConfig", _logits)
SOUND = ({2: "length"},)

DYNAMO = [
    _held("canine", _CANINE, _words(16), SEQUENCE,
          ("model.initial_char_encoder.layer.0.attention", "refused", "for chunk_start in range("),
          paths=("model.final_char_encoder.layer.0.attention",)),
    _held("funnel", _FUNNEL, _words(8), SEQUENCE, (STRUCTURE, "refused", "list(range(seq_len))")),
    _held("mamba", _of("MambaModel", "MambaConfig", **MAMBA), _words(6), SEQUENCE,
          ("model.layers.0.mixer", "refused", "for index in range(seq_len)"), others=("= mamba_selective_scan(",)),
    _held("rwkv", _RWKV, _words(6), SEQUENCE,
          ("model.blocks.0.attention", "refused", "for current_index in range(seq_length)"), others=RWKV_LINES),
    _held("mixtral", _MIXTRAL, _words(6), SEQUENCE,
          ("model.layers.0.mlp.experts", "refused", "for expert_idx in expert_hit")),
    _held("longformer", _of("LongformerModel", "LongformerConfig", **LONG), _words(8), SEQUENCE,
          ("model.encoder.layer.0.attention.self", "refused", "hidden_states = hidden_states.view("),
          others=("torch.div(hidden_states.size(1)",)),
    _held("longt5", _LONGT5, _words(8), SEQUENCE, ("model.encoder", "refused", "_get_local_attention_mask("),
          others=MASKED),
    _held("autoformer", _AUTOFORMER, _vectors(8, 32), SEQUENCE,
          ("model.layers.0.self_attn", "refused", "math.log(time_length)")),
    _held("reformer", _REFORMER, _words(8), SEQUENCE, ("model", "silent", "input_shape[-1] % least"), **SHARED),
    _held("encodec", _ENCODEC, _sound(64), SOUND, ("layers.0", "refused", "self._pad1d("), others=PADDED),
    _held("timesformer", _of("TimesformerModel", "TimesformerConfig", Frames, num_frames=2, **IMAGES),
          _image(32, 32), ({0: "batch", 2: "height"},),
          ("model.embeddings", "silent", "embeddings.size(1) != self.position_embeddings.size(1)")),
    _held("eomt", _of("EomtForUniversalSegmentation", "EomtConfig", _masks, num_upscale_blocks=1, num_blocks=1,
                      num_queries=4, num_register_tokens=2, **DINO),
          _image(32, 32), BATCH, ("model", "refused", "self.training or self.attn_mask_probs[")),
    _held("dpt-square", _of("DPTForDepthEstimation", "DPTConfig", _depth, **DPT), _image(64, 64), HW,
          ("model.neck.reassemble_stage", "silent", "torch_int(sequence_length**0.5)")),
    _held("clip-native", _of("CLIPVisionModel", "CLIPVisionConfig", Flagged, projection_dim=32, **IMAGES),
          _image(32, 32), HW, ("model.embeddings", "silent", NATIVE)),
    _held("siglip-native", _of("SiglipVisionModel", "SiglipVisionConfig", Flagged, **IMAGES), _image(32, 32), HW,
          ("model.embeddings", "silent", NATIVE)),
    _held("vitdet-windows", _of("VitDetModel", "VitDetConfig", **WINDOWED), _image(64, 64), HW,
          ("model.encoder.layer.1.attention", "refused", "max(k_size / q_size"),
          others=("max(q_size / k_size", "add_decomposed_relative_positions(")),
    _held("maskformer-swin", _MASKED_SWIN, _image(64, 96), HW,
          ("model.embeddings.patch_embeddings", "silent", "self.patch_size[1] != 0"), others=PADS, paths=PARTS),
    _held("donut-swin", _of("DonutSwinModel", "DonutSwinConfig", **SWIN), _image(64, 96), HW,
          ("model.embeddings.patch_embeddings", "silent", "self.patch_size[1] != 0"), others=PADS, paths=PARTS),
    _held("vilt", _of("ViltModel", "ViltConfig", Read, vocab_size=20, max_image_length=-1, **IMAGES), _one_image, HW,
          ("model.embeddings", "refused", "zip(x_h, x_w)"),
          others=("size=(h, w)", "nn.functional.interpolate(", "nn.functional.pad(")),
    _held("mobilevit-v2", _of("MobileViTV2Model", "MobileViTV2Config", **V2), _image(64, 96), HW,
          ("model.encoder.layer.?", "refused", "nn.functional.fold("), others=("nn.functional.unfold(", "math.ceil(")),
    _held("beit", _of("BeitModel", "BeitConfig", Flagged, use_relative_position_bias=True,
                      layer_scale_init_value=0.1, **IMAGES),
          _image(32, 32), HW, ("model.layers.0.relative_position_bias", "silent", "torch_int(new_height)")),
    _held("upernet-convnext", _of(*_UPERNET, backbone_config=CONVNEXT, pool_scales=[1, 2, 3, 6], **POOLED),
          _image(64, 96), HW, ("model.decode_head.psp_modules.[123].0", "silent", "")),
    _held("upernet-swin", _of(*_UPERNET, backbone_config=FOUR, pool_scales=[1, 2, 3], **POOLED), _image(192, 256), HW,
          ("model.decode_head.psp_modules.[12].0", "silent", ""), paths=PARTS),
    _held("maskformer", _of("MaskFormerForInstanceSegmentation", "MaskFormerConfig", _masks, fpn_feature_size=32,
                            mask_feature_size=32, backbone_config=FOUR, decoder_config=DETR),
          _image(192, 256), HW, (PARTS[0], "silent", "self.patch_size[1] != 0"), others=PADS, paths=PARTS[1:]),
    _held("timm-mobilevit", _timm("mobilevit_xxs"), _image(64, 96), HW,
          ("stages.?.1", "silent", "math.ceil(H"), others=("new_h != H",)),
    _held("timm-mobilevit-v2", _timm("mobilevitv2_050"), _image(64, 96), HW,
          ("stages.?.1", "silent", "math.ceil(H"), others=("new_h != H",)),
    _held("timm-twins", _timm("twins_svt_small", depths=(1, 1, 1, 1)), _image(64, 96), HW,
          ("blocks.0.0.attn", "refused", "scaled_dot_product_attention("), paths=("blocks.?.0.attn",)),
]  # fmt: skip
TRACE = [
    _held("funnel", _FUNNEL, _words(8), SEQUENCE, (STRUCTURE, "silent", "list(range(seq_len))"), "trace"),
    _held("rwkv", _RWKV, _words(6), SEQUENCE,
          ("model.blocks.0.attention", "silent", "for current_index in range(seq_length)"), "trace", others=RWKV_LINES),
    _held("mixtral", _MIXTRAL, _words(6), SEQUENCE,
          ("model.layers.0.self_attn", "refused", "attention_interface("), "trace",
          others=("scaled_dot_product_attention(",), operator="scaled_dot_product_attention"),
    _held("longt5", _LONGT5, _words(8), SEQUENCE, ("model.encoder", "silent", "_get_local_attention_mask("), "trace",
          others=MASKED, paths=BLOCKS),
    _held("autoformer", _AUTOFORMER, _vectors(8, 32), SEQUENCE,
          ("model.layers.0.self_attn", "refused", "torch.fft.rfft("), "trace", operator="fft_rfft"),
    _held("reformer", _REFORMER, _words(8), SEQUENCE,
          ("model.encoder", "refused", "_ReversibleFunction.apply("), "trace"),
    _held("encodec", _ENCODEC, _sound(64), SOUND, ("layers.*", "silent", "if length <= max_pad"), "trace",
          others=PADDED),
    _held("maskformer-swin", _MASKED_SWIN, _image(64, 96), HW,
          ("model.embeddings.patch_embeddings", "silent", "self.patch_size[1] != 0"), "trace", others=PADS,
          paths=PARTS),
]  # fmt: skip
CASES = [*DYNAMO, *TRACE]
