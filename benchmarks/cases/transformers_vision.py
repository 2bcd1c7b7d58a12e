"""transformers' vision models whose position tables, windows or heads depend on the image's size; tiny, random weights.

One model per spelling of the method that interpolates or partitions, not per name: relatives share their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from benchmarks.case import Case, image

LIBRARIES = ("transformers",)
LEFT_OUT = {
    "siglip2 and other models on packed patches": "take no image; their tables have tests of their own",
    "vilt": "draws at random in which order it takes the patches, in a Python loop over the images; refused",
}
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
             patch_size=8)  # fmt: skip
RATIO = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=32, patch_size=8)
STAGES = dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
WINDOWS = dict(image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
DETECTOR = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=5)  # fmt: skip
SEGMENTER = dict(feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=32, encoder_layers=1,
                 decoder_layers=2, num_attention_heads=4, dim_feedforward=32, num_queries=5)  # fmt: skip
# Images: the size that a model was made for, and others; larger, smaller, and that patches or windows do not divide.
LARGE = dict(native=(64, 64), others=((64, 96), (96, 128), (128, 64)))
UNEVEN = dict(native=(64, 64), others=((72, 88), (96, 128), (60, 44)))
HUGE = dict(native=(192, 192), others=((192, 256), (256, 320), (160, 224)))
SQUARE = dict(native=(64, 64), others=((96, 96), (48, 48), (32, 32)))


class Fields(nn.Module):
    """Some fields of a model's output, in order; tensors and tuples of tensors."""

    def __init__(self, model: nn.Module, names: Sequence[str], options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, pixel_values: Tensor) -> Any:
        output = self.model(pixel_values=pixel_values, **self.options)
        return [getattr(output, name) for name in self.names]


def case(
    model: str,
    config: str,
    options: dict[str, Any],
    fields: str = "last_hidden_state",
    sizes: dict[str, Any] | None = None,
    call: dict[str, Any] | None = None,
) -> Callable[[], Case]:
    """`model` and `config` by their names in transformers; options that are functions are called: nested configs."""

    def build() -> Case:
        import transformers

        given = {name: value() if callable(value) else value for name, value in options.items()}
        made = getattr(transformers, model)(getattr(transformers, config)(**given))
        return image(Fields(made, fields.split(), call or {}), **(sizes or {}))

    return build


def config(name: str, **options: Any) -> Callable[[], Any]:
    import transformers

    return lambda: getattr(transformers, name)(**options)


FLAG = dict(interpolate_pos_encoding=True)
DINO = dict(**{**RATIO, "num_hidden_layers": 4}, out_indices=[1, 2, 3, 4], reshape_hidden_states=False,
            apply_layernorm=True)  # fmt: skip
DEPTH = dict(neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16)
LABELS = "logits pred_boxes"
MASKS = "class_queries_logits masks_queries_logits"
RESNET = dict(embedding_size=8, layer_type="basic", **STAGES)
SWIN = config("SwinConfig", image_size=64, patch_size=4, embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4],
              window_size=4, out_indices=[1, 2, 3, 4])  # fmt: skip
RT_DETR = dict(encoder_hidden_dim=32, encoder_in_channels=[16, 24, 32], encoder_ffn_dim=32, encoder_attention_heads=4,
               d_model=32, num_queries=8, decoder_in_channels=[32, 32, 32], decoder_ffn_dim=32, decoder_layers=1,
               decoder_attention_heads=4, num_denoising=0, auxiliary_loss=False)  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    # Position tables, by the spelling of interpolate_pos_encoding.
    "vit": case("ViTModel", "ViTConfig", SMALL, call=FLAG),
    "clip": case("CLIPVisionModel", "CLIPVisionConfig", dict(projection_dim=32, **SMALL), call=FLAG),
    "blip": case("BlipVisionModel", "BlipVisionConfig", dict(projection_dim=32, **SMALL), call=FLAG),
    "siglip": case("SiglipVisionModel", "SiglipVisionConfig", SMALL, call=FLAG),
    "beit": case("BeitModel", "BeitConfig", dict(use_relative_position_bias=True, layer_scale_init_value=0.1, **SMALL),
                 call=FLAG),
    "data2vec": case("Data2VecVisionModel", "Data2VecVisionConfig", dict(use_relative_position_bias=True, **SMALL),
                     call=FLAG),
    "dinov2": case("Dinov2Model", "Dinov2Config", RATIO),
    "dinov2_registers": case("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig",
                             dict(num_register_tokens=2, **RATIO)),
    "dinov3": case("DINOv3ViTModel", "DINOv3ViTConfig", dict(num_register_tokens=2, **SMALL)),
    "yolos": case("YolosForObjectDetection", "YolosConfig",
                  dict(**{**SMALL, "image_size": [32, 48]}, num_detection_tokens=5, use_mid_position_embeddings=True),
                  LABELS, dict(native=(32, 48), others=((40, 56), (24, 16), (64, 64)))),
    "vitdet": case("VitDetModel", "VitDetConfig",
                   dict(pretrain_image_size=32, window_size=2, window_block_indices=[0],
                        use_relative_position_embeddings=True, **{**RATIO, "image_size": 64}), sizes=LARGE),
    "pvt_v2": case("PvtV2Model", "PvtV2Config",
                   dict(image_size=[64, 64], num_attention_heads=[1, 2, 2, 4], mlp_ratios=[2, 2, 2, 2],
                        num_encoder_blocks=4, **STAGES), sizes=LARGE),
    "segformer": case("SegformerForSemanticSegmentation", "SegformerConfig",
                      dict(decoder_hidden_size=16, num_labels=5, num_attention_heads=[1, 2, 2, 4],
                           mlp_ratios=[2, 2, 2, 2], num_encoder_blocks=4, **STAGES), "logits", LARGE),
    # Depth.
    "depth_anything": case("DepthAnythingForDepthEstimation", "DepthAnythingConfig",
                           dict(backbone_config=config("Dinov2Config", **DINO), patch_size=8,
                                reassemble_hidden_size=32, head_hidden_size=8, **DEPTH), "predicted_depth", LARGE),
    "dpt": case("DPTForDepthEstimation", "DPTConfig",
                dict(**{**SMALL, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3], **DEPTH),
                "predicted_depth", SQUARE),
    # Windows.
    "swin": case("SwinModel", "SwinConfig", WINDOWS, sizes=UNEVEN),
    "swinv2": case("Swinv2Model", "Swinv2Config", WINDOWS, sizes=UNEVEN),
    "donut_swin": case("DonutSwinModel", "DonutSwinConfig", WINDOWS, sizes=UNEVEN),
    "maskformer_swin": case("MaskFormerSwinBackbone", "MaskFormerSwinConfig", WINDOWS, "feature_maps", UNEVEN),
    "hiera": case("HieraModel", "HieraConfig",
                  dict(embed_dim=16, image_size=[64, 64], depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4],
                       masked_unit_size=[8, 8], num_query_pool=3), sizes=LARGE, call=FLAG),
    "swin2sr": case("Swin2SRForImageSuperResolution", "Swin2SRConfig",
                    dict(image_size=16, embed_dim=16, depths=[2], num_heads=[2], window_size=4), "reconstruction",
                    dict(native=(16, 16), others=((20, 28), (24, 32), (16, 12)))),
    # Detection and segmentation: sine and anchor grids, masks, several scales.
    "detr": case("DetrForObjectDetection", "DetrConfig",
                 dict(backbone_config=config("ResNetConfig", out_indices=[4], **RESNET), **DETECTOR), LABELS, LARGE),
    "deformable_detr": case("DeformableDetrForObjectDetection", "DeformableDetrConfig",
                            dict(backbone_config=config("ResNetConfig", out_indices=[2, 3, 4], **RESNET),
                                 **{**DETECTOR, "decoder_layers": 2}), LABELS, HUGE),
    "rt_detr": case("RTDetrForObjectDetection", "RTDetrConfig",
                    dict(backbone_config=config("RTDetrResNetConfig", out_indices=[2, 3, 4], **RESNET), **RT_DETR),
                    LABELS, LARGE),
    "mask2former": case("Mask2FormerForUniversalSegmentation", "Mask2FormerConfig",
                        dict(backbone_config=SWIN, common_stride=4, **SEGMENTER), MASKS, HUGE),
    "eomt": case("EomtForUniversalSegmentation", "EomtConfig",
                 dict(num_upscale_blocks=1, num_blocks=1, num_queries=4, num_register_tokens=2, **RATIO), MASKS),
    "upernet": case("UperNetForSemanticSegmentation", "UperNetConfig",
                    dict(backbone_config=SWIN, hidden_size=16, pool_scales=[1, 2, 3], use_auxiliary_head=False),
                    "logits", HUGE),
}  # fmt: skip
