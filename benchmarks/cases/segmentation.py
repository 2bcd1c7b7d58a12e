"""Segmentation: segmentation_models_pytorch and Segment Anything, small; images of any size that eager takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case, image, randomise
from benchmarks.transformers_models import Keyword, made, sized

LIBRARIES = ("segmentation-models-pytorch", "segment-anything", "timm", "transformers")
LEFT_OUT = {"encoders of other families": "timm's own models are a family of their own"}
SIZES: dict[str, Any] = dict(native=(64, 64), others=((64, 96), (96, 160), (128, 32)))
ODD: dict[str, Any] = dict(native=(64, 64), others=((64, 96), (70, 90), (96, 50), (33, 47)))


def smp(name: str, sizes: dict[str, Any] = SIZES, encoder: str = "resnet18", **options: Any) -> Callable[[], Case]:
    def build() -> Case:
        import segmentation_models_pytorch as library

        model = getattr(library, name)(encoder, encoder_weights=None, classes=3, **options)
        return image(model, **sizes)

    return build


SMALL = dict(decoder_channels=(32, 16, 16, 8, 8))


def sam_encoder() -> nn.Module:
    from segment_anything.modeling import ImageEncoderViT

    return ImageEncoderViT(img_size=64, patch_size=8, embed_dim=32, depth=2, num_heads=2, out_chans=16, window_size=3,
                           use_rel_pos=True, global_attn_indexes=(1,))  # fmt: skip


def sam() -> nn.Module:
    from segment_anything.modeling import MaskDecoder, PromptEncoder, Sam, TwoWayTransformer

    return Sam(
        sam_encoder(),
        PromptEncoder(embed_dim=16, image_embedding_size=(8, 8), input_image_size=(64, 64), mask_in_chans=4),
        MaskDecoder(transformer_dim=16, iou_head_hidden_dim=16,
                    transformer=TwoWayTransformer(depth=1, embedding_dim=16, num_heads=2, mlp_dim=32)),
    )  # fmt: skip


class Prompted(nn.Module):
    """SAM's masks for one image's embedding and the clicks on it, as its own SamOnnxModel has them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.prompts, self.decoder = model.prompt_encoder, model.mask_decoder

    def forward(self, embedding: Tensor, points: Tensor, labels: Tensor) -> Any:
        sparse, dense = self.prompts(points=(points, labels), boxes=None, masks=None)
        return self.decoder(image_embeddings=embedding, image_pe=self.prompts.get_dense_pe(),
                            sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense,
                            multimask_output=True)  # fmt: skip


def clicks(batch: int, points: int) -> Args:
    return torch.randn(1, 16, 8, 8), torch.rand(batch, points, 2) * 64, torch.randint(0, 2, (batch, points))


def sam_prompted() -> Case:
    shapes = (None, {0: "prompts", 1: "points"}, {0: "prompts", 1: "points"})
    return sized(Prompted(randomise(sam())), clicks, ((2, 3), (3, 3), (1, 1), (2, 8)), shapes)


def sam_onnx() -> Case:
    """The model that segment_anything itself exports: masks in the size of the original image."""
    from segment_anything.utils.onnx import SamOnnxModel

    def make(points: int, height: int, width: int) -> Args:
        return (torch.randn(1, 16, 8, 8), torch.rand(1, points, 2) * 64, torch.randint(0, 2, (1, points)).float(),
                torch.randn(1, 1, 32, 32), torch.ones(1), torch.tensor([height, width]).float())  # fmt: skip

    shapes = (None, {1: "points"}, {1: "points"}, None, None, None)
    model = SamOnnxModel(randomise(sam()), return_single_mask=False)
    return sized(model, make, ((3, 48, 64), (1, 64, 64), (8, 100, 70), (2, 33, 80)), shapes)


def prompted(kind: str, auto: str, **options: Any) -> Callable[[], Case]:
    """transformers' Segment Anything: an image and clicks."""

    def make(batch: int, objects: int, points: int) -> Args:
        return torch.randn(batch, 3, 64, 64), torch.rand(batch, objects, points, 2) * 64

    shapes = ({0: "batch"}, {0: "batch", 1: "objects", 2: "points"})
    names, fields = ("pixel_values", "input_points"), ("pred_masks", "iou_scores")
    build = lambda: Keyword(made(auto, kind, **options), names, fields)  # noqa: E731
    return lambda: sized(build(), make, ((2, 2, 3), (3, 2, 3), (1, 1, 1), (2, 3, 8)), shapes)


SAM = dict(
    vision_config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=8,
                       output_channels=16, window_size=3, global_attn_indexes=[1], mlp_dim=64, num_pos_feats=8),
    prompt_encoder_config=dict(hidden_size=16, image_size=64, patch_size=8, mask_input_channels=4),
    mask_decoder_config=dict(hidden_size=16, mlp_dim=32, num_hidden_layers=1, num_attention_heads=2,
                             iou_head_hidden_dim=16),
)  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    "unet": smp("Unet", **SMALL),
    "unet_any_size": smp("Unet", ODD, decoder_interpolation="bilinear", **SMALL),
    "unet_scse": smp("Unet", decoder_attention_type="scse", decoder_channels=(64, 32, 32, 16, 16)),
    "unet_mobilenet": smp("Unet", encoder="timm-mobilenetv3_small_075", **SMALL),
    "unet_efficientnet": smp("Unet", encoder="efficientnet-b0", **SMALL),
    "unet_mit": smp("Unet", encoder="mit_b0", **SMALL),
    "unetplusplus": smp("UnetPlusPlus", **SMALL),
    "manet": smp("MAnet", **SMALL),
    "linknet": smp("Linknet"),
    "fpn": smp("FPN", decoder_pyramid_channels=16, decoder_segmentation_channels=32),
    "pspnet": smp("PSPNet", ODD, psp_out_channels=16),
    "pan": smp("PAN", dict(native=(128, 128), others=((128, 160), (192, 128))), decoder_channels=8),
    "deeplabv3": smp("DeepLabV3", ODD, decoder_channels=16),
    "deeplabv3plus": smp("DeepLabV3Plus", decoder_channels=16),
    "upernet": smp("UPerNet", decoder_channels=16),
    "segformer": smp("Segformer", decoder_segmentation_channels=16),
    "dpt": smp("DPT", dict(native=(64, 64), others=((64, 96), (96, 64))), encoder="tu-vit_tiny_patch16_224",
               dynamic_img_size=True, decoder_fusion_channels=16),
    "sam_encoder": lambda: image(sam_encoder(), native=(64, 64)),
    "sam_prompted": sam_prompted,
    "sam_onnx": sam_onnx,
    "transformers_sam": prompted("sam", "SamModel", **SAM),
    "transformers_sam_hq": prompted("sam_hq", "SamHQModel", **{**SAM, "mask_decoder_config": dict(
        SAM["mask_decoder_config"], vit_dim=32)}),
}  # fmt: skip
