"""open_clip and kornia, tiny: towers, features, warps, filters; images of any size that eager takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.case import Args, Case, image, randomise
from benchmarks.transformers_models import Keyword, sized

LIBRARIES = ("open-clip-torch", "kornia")
LEFT_OUT = {
    "kornia's DISK, LightGlue, KeyNet detectors": "return lists whose lengths the data decides, image by image",
    "open_clip's Hugging Face towers": "ask the hub for a configuration",
}
VISION = dict(layers=2, width=32, head_width=8, patch_size=8, image_size=32)
TEXT = dict(context_length=12, vocab_size=99, width=32, heads=4, layers=2)
LARGE: dict[str, Any] = dict(native=(64, 64), others=((64, 96), (96, 64), (50, 71)))


def clip(cls: str = "CLIP", vision: dict[str, Any] | None = None, text: dict[str, Any] | None = None,
         **options: Any) -> Callable[[], Case]:  # fmt: skip
    """An image and a text of the fixed length: what open_clip's towers take."""

    def build() -> Case:
        import open_clip.model

        made = getattr(open_clip.model, cls)(16, {**VISION, **(vision or {})}, {**TEXT, **(text or {})}, **options)
        make = lambda b: (torch.randn(b, 3, 32, 32), torch.randint(1, 98, (b, 12)))  # noqa: E731
        names = ("image", "text")
        return sized(Keyword(randomise(made), names), make, ((2,), (3,), (1,)), ({0: "batch"}, {0: "batch"}))

    return build


def resnet() -> Case:
    from open_clip.modified_resnet import ModifiedResNet

    return image(ModifiedResNet((1, 1, 1, 1), 16, 4, image_size=64, width=8), native=(64, 64), others=())


def coca() -> Case:
    from open_clip.coca_model import CoCa

    made = CoCa(32, TEXT, {**TEXT, "embed_cls": True, "output_tokens": True},
                {**VISION, "attentional_pool": True, "attn_pooler_heads": 4, "output_tokens": True})  # fmt: skip
    make = lambda b: (torch.randn(b, 3, 32, 32), torch.randint(1, 98, (b, 12)))  # noqa: E731
    return sized(Keyword(randomise(made), ("image", "text")), make, ((2,), (3,), (1,)), ({0: "batch"}, {0: "batch"}))


class Function(nn.Module):
    """A function of kornia with its options."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, options

    def forward(self, a: Any, b: Any = None) -> Any:
        return self.function(a, **self.options) if b is None else self.function(a, b, **self.options)


PICTURE = {0: "batch", 2: "height", 3: "width"}
PICTURES = ((2, 24, 32), (3, 24, 32), (1, 32, 32), (2, 41, 55), (1, 16, 9))


def colours(batch: int, height: int, width: int) -> Args:
    return (torch.rand(batch, 3, height, width),)


def grey(batch: int, height: int, width: int) -> Args:
    return (torch.rand(batch, 1, height, width),)


def with_(rows: int, columns: int) -> Callable[..., Args]:
    """A picture and one matrix for each, near the identity."""
    near = lambda b: torch.eye(rows, columns).repeat(b, 1, 1) + 0.02 * torch.randn(b, rows, columns)  # noqa: E731
    return lambda b, h, w: (torch.rand(b, 3, h, w), near(b))


def kornia(path: str, make: Callable[..., Args] = colours, sizes: Sequence[tuple[int, ...]] = PICTURES, *,
           shapes: Any = None, **options: Any) -> Callable[[], Case]:  # fmt: skip
    """A function of kornia, or a module built with ``options``."""

    def build() -> Case:
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(f"kornia.{module}"), name)
        made = randomise(found(**options)) if isinstance(found, type) else Function(found, options)
        return sized(made, make, sizes, shapes or (PICTURE, {0: "batch"})[: len(make(*sizes[0]))])

    return build


PATCH: Callable[..., Args] = lambda b: (torch.rand(b, 1, 32, 32),)  # noqa: E731
PATCHES: dict[str, Any] = dict(make=PATCH, sizes=((2,), (3,), (1,)), shapes=({0: "batch"},))
POINTS: Callable[..., Args] = lambda b, n: (torch.randn(b, 3, 3), torch.randn(b, n, 2))  # noqa: E731


def matching() -> Case:
    """LoFTR's coarse features: its backbone and its transformer."""
    from kornia.feature.loftr.backbone import build_backbone

    config = dict(backbone_type="ResNetFPN", resolution=(8, 2),
                  resnetfpn=dict(initial_dim=16, block_dims=[16, 24, 32]))  # fmt: skip
    made = randomise(build_backbone(config))
    return sized(made, grey, ((2, 32, 48), (3, 32, 48), (1, 64, 64), (2, 16, 80)), (PICTURE,))


def attention() -> Case:
    from kornia.feature.loftr.loftr_module.transformer import LocalFeatureTransformer

    made = LocalFeatureTransformer(dict(d_model=32, nhead=4, layer_names=["self", "cross"], attention="linear"))
    make = lambda b, n, m: (torch.randn(b, n, 32), torch.randn(b, m, 32))  # noqa: E731
    shapes = ({0: "batch", 1: "here"}, {0: "batch", 1: "there"})
    return sized(randomise(made), make, ((2, 12, 9), (3, 12, 9), (1, 1, 4), (2, 30, 20)), shapes)


def described() -> Case:
    """A dense description of a picture: XFeat's network."""
    from kornia.feature.xfeat import XFeatModel

    return sized(randomise(XFeatModel()), grey, ((2, 64, 96), (3, 64, 96), (1, 32, 32), (1, 128, 96)), (PICTURE,))


CASES: dict[str, Callable[[], Case]] = {
    "clip": clip(),
    "clip_average_pool": clip(vision=dict(pool_type="avg", final_ln_after_pool=True)),
    "clip_attentional_pool": clip(vision=dict(attentional_pool=True, attn_pooler_heads=4)),
    "clip_layer_scale": clip(vision=dict(ls_init_value=0.1), text=dict(ls_init_value=0.1), quick_gelu=True),
    "clip_custom_text": clip("CustomTextCLIP", text=dict(embed_cls=True, pool_type="last")),
    "siglip": clip("CustomTextCLIP", vision=dict(pool_type="avg"), text=dict(no_causal_mask=True, pool_type="last"),
                   init_logit_bias=-10),
    "clip_resnet": clip(vision=dict(layers=(1, 1, 1, 1), width=8, head_width=8)),
    "clip_timm": clip(vision=dict(timm_model_name="resnet10t", timm_pool="avg", timm_proj="linear",
                                  timm_model_pretrained=False)),
    "modified_resnet": resnet,
    "coca": coca,
    "rgb_to_lab": kornia("color.rgb_to_lab"),
    "rgb_to_hsv": kornia("color.rgb_to_hsv"),
    "rgb_to_luv": kornia("color.rgb_to_luv"),
    "gaussian_blur": kornia("filters.gaussian_blur2d", kernel_size=(5, 5), sigma=(1.5, 1.5)),
    "bilateral_blur": kornia("filters.bilateral_blur", kernel_size=(3, 3), sigma_color=0.1, sigma_space=(1.5, 1.5)),
    "median_blur": kornia("filters.median_blur", kernel_size=(3, 3)),
    "guided_blur": kornia("filters.guided_blur", lambda b, h, w: (*colours(b, h, w), *colours(b, h, w)),
                          shapes=(PICTURE, PICTURE), kernel_size=3, eps=0.1),
    "sobel": kornia("filters.sobel"),
    "laplacian": kornia("filters.laplacian", kernel_size=3),
    "spatial_gradient": kornia("filters.spatial_gradient"),
    "dilation": kornia("morphology.dilation", kernel=torch.ones(3, 3)),
    "warp_affine": kornia("geometry.transform.warp_affine", with_(2, 3), dsize=(20, 28)),
    "warp_perspective": kornia("geometry.transform.warp_perspective", with_(3, 3), dsize=(20, 28)),
    "rotate": kornia("geometry.transform.rotate", lambda b, h, w: (*colours(b, h, w), torch.linspace(-40, 55, b))),
    "resize": kornia("geometry.transform.resize", size=(20, 28), antialias=True),
    "pyramid_down": kornia("geometry.transform.pyrdown"),
    "homography_points": kornia("geometry.linalg.transform_points", POINTS, ((2, 5), (3, 5), (1, 1), (2, 12)),
                                shapes=({0: "batch"}, {0: "batch", 1: "points"})),
    "spatial_softmax": kornia("geometry.subpix.spatial_soft_argmax2d"),
    "harris": kornia("feature.harris_response", grey),
    "equalize": kornia("enhance.equalize_clahe", grey, ((2, 32, 48), (3, 32, 48), (1, 64, 64)), grid_size=(4, 4)),
    "hardnet": kornia("feature.HardNet", pretrained=False, **PATCHES),
    "sosnet": kornia("feature.SOSNet", pretrained=False, **PATCHES),
    "tfeat": kornia("feature.TFeat", pretrained=False, **PATCHES),
    "sift_descriptor": kornia("feature.SIFTDescriptor", patch_size=32, **PATCHES),
    "mkd_descriptor": kornia("feature.MKDDescriptor", patch_size=32, whitening=None, **PATCHES),
    "loftr_backbone": matching,
    "loftr_attention": attention,
    "xfeat": described,
    "ssim": kornia("metrics.ssim", lambda b, h, w: (*colours(b, h, w), *colours(b, h, w)), shapes=(PICTURE, PICTURE),
                   window_size=5),
}  # fmt: skip
