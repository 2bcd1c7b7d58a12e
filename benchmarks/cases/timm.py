"""timm's models that eager PyTorch runs at other sizes than their own; tiny, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from benchmarks.case import Case, image

LIBRARIES = ("timm", "transformers")
SMALL = dict(embed_dim=32, depth=2, num_heads=4, num_classes=5)
ANY = dict(img_size=32, patch_size=8, dynamic_img_size=True, **SMALL)
FOUR = dict(depths=(1, 1, 1, 1), num_classes=5)
LARGE = dict(native=(64, 64), others=((64, 96), (96, 64), (128, 64), (96, 128)))
WINDOWS = dict(native=(64, 64), others=((64, 96), (72, 88), (96, 128), (60, 44)))


def make(name: str, **options: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, **options)


def case(name: str, sizes: dict[str, Any] | None = None, **options: Any) -> Callable[[], Case]:
    return lambda: image(make(name, **options), **(sizes or {}))


CASES: dict[str, Callable[[], Case]] = {
    "vit": case("vit_tiny_patch16_224", **ANY),
    "vit_padded": case("vit_tiny_patch16_224", dynamic_img_pad=True, **ANY),
    "vit_relpos": case("vit_relpos_small_patch16_224", img_size=32, patch_size=8, **SMALL),
    "vit_register": case("vit_small_patch14_reg4_dinov2", **ANY),
    "siglip": case("vit_base_patch16_siglip_224", **ANY),
    "perception_encoder": case("vit_pe_core_tiny_patch16_384", **ANY),
    "deit": case("deit_tiny_distilled_patch16_224", **ANY),
    "beit": case("beit_base_patch16_224", img_size=32, patch_size=8, **SMALL),
    "eva02": case("eva02_tiny_patch14_224", **ANY),
    "dinov3": case("vit_small_patch16_dinov3", **ANY),
    "vit_hybrid": case("vit_tiny_r_s16_p8_224", LARGE, img_size=64, dynamic_img_size=True, **SMALL),
    "swin": case("swin_tiny_patch4_window7_224", WINDOWS, img_size=64, window_size=4, embed_dim=16, depths=(2, 2),
                 num_heads=(2, 4), num_classes=5, strict_img_size=False),
    "swinv2": case("swinv2_tiny_window8_256", WINDOWS, img_size=64, window_size=4, embed_dim=16, depths=(2, 2),
                   num_heads=(2, 4), num_classes=5, strict_img_size=False),
    "maxvit": case("maxvit_rmlp_pico_rw_256", LARGE, img_size=64, embed_dim=(32, 32, 32, 32), depths=(1, 1, 1, 1),
                   num_classes=5),
    "davit": case("davit_tiny", WINDOWS, embed_dims=(16, 16, 32, 32), num_heads=(2, 2, 4, 4), **FOUR),
    "hiera": case("hiera_tiny_224", LARGE, img_size=(64, 64), embed_dim=16, num_heads=1, stages=(1, 1, 1, 1),
                  num_classes=5),
    "pvt_v2": case("pvt_v2_b0", LARGE, **FOUR),
    "twins": case("twins_svt_small", LARGE, **FOUR),
    "mobilevit": case("mobilevit_xxs", LARGE, num_classes=5),
    "mobilevitv2": case("mobilevitv2_050", LARGE, num_classes=5),
    "edgenext": case("edgenext_xx_small", LARGE, num_classes=5),
    "convnext": case("convnext_atto", LARGE, num_classes=5),
    "fastvit": case("fastvit_t8", LARGE, num_classes=5),
    "xcit": case("xcit_nano_12_p8_224", LARGE, img_size=64, embed_dim=32, depth=2, num_heads=4, num_classes=5),
    "cait": case("cait_xxs24_224", img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=5),
    "focalnet": case("focalnet_tiny_srf", LARGE, num_classes=5),
    "mvitv2": case("mvitv2_tiny", LARGE, num_classes=5),
    "nextvit": case("nextvit_small", LARGE, num_classes=5),
    "coatnet": case("coatnet_nano_rw_224", LARGE, img_size=64, num_classes=5),
}  # fmt: skip
