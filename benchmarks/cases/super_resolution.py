"""spandrel's super-resolution and restoration networks, small: images of any size, also odd ones."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.case import Case, image

LIBRARIES = ("spandrel",)
LEFT_OUT = {
    "KBNet_l, SeemoRe": "not found small: eager refused the configurations tried",
    "AuraSR, GFPGAN": "draw noise inside forward",
    "RestoreFormer, MMRealSR, LaMa, FBCNN": "of a fixed width; too slow to export in a coverage run",
    "IPT": "crops the image in a Python loop of its own",
}
SIZES: dict[str, Any] = dict(native=(32, 32), others=((32, 48), (40, 24), (27, 35), (64, 64)))
LARGE: dict[str, Any] = dict(native=(64, 64), others=((64, 96), (50, 72), (71, 65)))
TRANSFORMER = dict(img_size=32, embed_dim=12, depths=(2, 2), num_heads=(2, 2), window_size=4, upscale=2)
DENSE = dict(img_size=32, embed_dim=32, depth=[2, 2], num_heads=[2, 2], upscale=2)


def network(module: str, name: str, sizes: dict[str, Any] = SIZES, **options: Any) -> Callable[[], Case]:
    def build() -> Case:
        found = getattr(importlib.import_module(f"spandrel.architectures.{module}"), name)
        return image(found(**options), **sizes)

    return build


CASES: dict[str, Callable[[], Case]] = {
    "atd": network("ATD", "ATD", upsampler="pixelshuffledirect", category_size=16, num_tokens=8, reducted_dim=4,
                   **TRANSFORMER),
    "craft": network("CRAFT", "CRAFT", embed_dim=32, depths=[2], num_heads=[2], window_size=8, split_size_0=2,
                     split_size_1=4, upscale=2),
    "compact": network("Compact", "Compact", num_feat=8, num_conv=2, upscale=2),
    "dat": network("DAT", "DAT", split_size=[2, 4], **DENSE),
    "dctlsa": network("DCTLSA", "DCTLSA", nf=10, num_modules=6, upscale=2, num_head=5),
    "ditn": network("DITN", "DITN", dim=12, ITL_blocks=1, SAL_blocks=1, patch_size=8, upscale=2),
    "drct": network("DRCT", "DRCT", upsampler="pixelshuffle", gc=4, **TRANSFORMER),
    "drunet": network("DRUNet", "DRUNet", in_nc=3, out_nc=3, nc=[8, 8, 8, 8], nb=1),
    "dncnn": network("DnCNN", "DnCNN", in_nc=3, out_nc=3, nc=8, nb=3),
    "esrgan": network("ESRGAN", "ESRGAN", num_filters=8, num_blocks=1, scale=2),
    "fdat": network("FDAT", "FDAT", scale=2, embed_dim=16, num_groups=1, depth_per_group=2, num_heads=2,
                    window_size=4, mid_dim=8),
    "fftformer": network("FFTformer", "FFTformer", dim=8, num_blocks=[1, 1, 1], num_refinement_blocks=1),
    "grl": network("GRL", "GRL", img_size=32, embed_dim=16, upscale=2, upsampler="pixelshuffledirect", depths=[2],
                   num_heads_window=[2], num_heads_stripe=[2], window_size=4, stripe_size=[4, 4]),
    "hat": network("HAT", "HAT", num_feat=8, squeeze_factor=4, **TRANSFORMER),
    "hvi_cidnet": network("HVICIDNet", "HVICIDNet", channels=[8, 8, 16, 16], heads=[1, 2, 2, 2]),
    "kbnet_s": network("KBNet", "KBNet_s", width=8, middle_blk_num=1, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]),
    "mixdehazenet": network("MixDehazeNet", "MixDehazeNet", LARGE, embed_dims=[8, 16, 32, 16, 8]),
    "moesr": network("MoESR", "MoESR", scale=2, dim=16, n_blocks=1, n_block=1),
    "moesr_dysample": network("MoESR", "MoESR", scale=2, dim=16, n_blocks=1, n_block=1, upsampler="dysample",
                              upsample_dim=16),
    "mosr": network("MoSR", "MoSR", upscale=2, n_block=2, dim=16),
    "nafnet": network("NAFNet", "NAFNet", width=8, enc_blk_nums=[1, 1], dec_blk_nums=[1, 1]),
    "omnisr": network("OmniSR", "OmniSR", num_feat=16, window_size=4, up_scale=2),
    "plksr": network("PLKSR", "PLKSR", dim=16, n_blocks=1, upscaling_factor=2, kernel_size=5),
    "realplksr_dysample": network("PLKSR", "RealPLKSR", dim=16, n_blocks=1, upscaling_factor=2, kernel_size=5,
                                  dysample=True),
    "rcan": network("RCAN", "RCAN", scale=2, n_resgroups=1, n_resblocks=1, n_feats=16),
    "rgt": network("RGT", "RGT", split_size=[4, 4], **DENSE),
    "real_cugan_2x": network("RealCUGAN", "UpCunet2x", LARGE),
    "real_cugan_3x": network("RealCUGAN", "UpCunet3x", LARGE),
    "retinexformer": network("RetinexFormer", "RetinexFormer", n_feat=8, stage=1),
    "safmn": network("SAFMN", "SAFMN", dim=8, n_blocks=1, upscaling_factor=2),
    "safmn_bcie": network("SAFMNBCIE", "SAFMNBCIE", dim=8, n_blocks=1, num_layers=1, upscaling_factor=2),
    "scunet": network("SCUNet", "SCUNet", LARGE,
                      config=[1, 1, 1, 1, 1, 1, 1], dim=64, input_resolution=64),
    # With 255 its gates make 2 % out of a rounding: eager's float32 is then as far from float64 as a wrong graph.
    "span": network("SPAN", "SPAN", num_in_ch=3, num_out_ch=3, feature_channels=8, upscale=2,
                    img_range=1.0),
    "swift_srgan": network("SwiftSRGAN", "SwiftSRGAN", num_channels=8, num_blocks=1, upscale_factor=2),
    "swin2sr": network("Swin2SR", "Swin2SR", upsampler="pixelshuffle", **TRANSFORMER),
    "swinir": network("SwinIR", "SwinIR", upsampler="pixelshuffle", **TRANSFORMER),
    "swinir_nearest": network("SwinIR", "SwinIR", upsampler="nearest+conv", **{**TRANSFORMER, "upscale": 4}),
    "uformer": network("Uformer", "Uformer", LARGE, img_size=64,
                       embed_dim=8, depths=[1] * 9, win_size=4),
}  # fmt: skip
