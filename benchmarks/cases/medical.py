"""monai's networks for images and volumes, small: any size that eager takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.case import Case, at_sizes, randomise

LIBRARIES = ("monai",)
LEFT_OUT = {
    "DiNTS, NetAdapter, TorchVisionFCModel": "search spaces and wrappers around other networks",
    "VISTA3D, cell SAM": "prompts and weights of their own",
    "MaskedAutoEncoderViT, VarAutoEncoder, AutoencoderKL": "draw at random inside forward",
    "SENet": "seconds in eager even when small",
    "VoxelMorph": "takes a pair of images stacked as channels and ends in a warp that is a case of kornia's",
}
PLANE: dict[str, Any] = dict(native=(32, 32), others=((32, 48), (48, 64), (64, 32)))
ODD: dict[str, Any] = dict(native=(32, 32), others=((32, 48), (36, 52), (35, 41)))
VOLUME: dict[str, Any] = dict(native=(16, 16, 16), others=((16, 16, 32), (32, 16, 16)))
LARGE: dict[str, Any] = dict(native=(32, 32, 64), others=((32, 64, 64), (64, 32, 32)))
NAMES = ("depth", "height", "width")


class First(nn.Module):
    """The network's answer; of several, the first."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        answer = self.model(x)
        return answer[0] if isinstance(answer, (list, tuple)) else answer


def network(name: str, sizes: dict[str, Any] = PLANE, **options: Any) -> Callable[[], Case]:
    """A network of monai on (batch, 1, *size)."""

    def build() -> Case:
        module, _, cls = f"monai.networks.nets.{name}".rpartition(".")
        model = First(getattr(importlib.import_module(module), cls)(**options))
        make = lambda n, size: (torch.randn(n, 1, *size),)  # noqa: E731
        rank = len(sizes["native"])
        return at_sizes(randomise(model), make, names=NAMES[-rank:], **sizes)

    return build


FLAT = dict(spatial_dims=2, in_channels=1, out_channels=2)
SOLID = dict(spatial_dims=3, in_channels=1, out_channels=2)
STEPS = dict(channels=(4, 8, 16), strides=(2, 2))
FIXED: dict[str, Any] = dict(native=(32, 32), others=())

CASES: dict[str, Callable[[], Case]] = {
    "unet_2d": network("UNet", **FLAT, **STEPS, num_res_units=1),
    "unet_3d": network("UNet", VOLUME, **SOLID, **STEPS, num_res_units=1),
    "basic_unet": network("BasicUNet", ODD, **FLAT, features=(4, 4, 8, 8, 16, 4)),
    "basic_unet_3d": network("BasicUNet", LARGE, **SOLID, features=(4, 4, 8, 8, 16, 4)),
    "basic_unetplusplus": network("BasicUNetPlusPlus", **FLAT, features=(4, 4, 8, 8, 16, 4)),
    "attention_unet": network("AttentionUnet", **FLAT, **STEPS),
    "dynunet": network("DynUNet", **FLAT, kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2],
                       filters=[4, 8, 16]),
    "segresnet": network("SegResNet", **FLAT, init_filters=8),
    "segresnet_3d": network("SegResNet", VOLUME, **SOLID, init_filters=8),
    "segresnet_ds": network("SegResNetDS", **FLAT, init_filters=8, blocks_down=(1, 1, 1)),
    "vnet": network("VNet", VOLUME, spatial_dims=3, in_channels=1, out_channels=2),
    "highresnet": network("HighResNet", ODD, **FLAT),
    "swin_unetr_2d": network("SwinUNETR", dict(native=(64, 64), others=((64, 96), (128, 64))), **FLAT, feature_size=12,
                             depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2), window_size=4),
    "swin_unetr_3d": network("SwinUNETR", LARGE, **SOLID, feature_size=12, depths=(1, 1, 1, 1),
                             num_heads=(2, 2, 2, 2), window_size=4),
    "unetr": network("UNETR", FIXED, **FLAT, img_size=32, feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2),
    "vit": network("ViT", FIXED, in_channels=1, img_size=(32, 32), patch_size=(8, 8), hidden_size=24, mlp_dim=32,
                   num_layers=2, num_heads=2, classification=True, spatial_dims=2),
    "vit_autoencoder": network("ViTAutoEnc", FIXED, in_channels=1, img_size=(32, 32), patch_size=(4, 4), hidden_size=24,
                               mlp_dim=32, num_layers=2, num_heads=2, spatial_dims=2),
    "mednext": network("MedNeXt", spatial_dims=2, in_channels=1, out_channels=2, init_filters=4,
                       encoder_expansion_ratio=2, decoder_expansion_ratio=2, bottleneck_expansion_ratio=2,
                       blocks_down=(1, 1, 1, 1), blocks_bottleneck=1, blocks_up=(1, 1, 1, 1)),
    "densenet": network("DenseNet", ODD, **FLAT, init_features=8, growth_rate=4, block_config=(1, 1)),
    "resnet_3d": network("resnet10", VOLUME, spatial_dims=3, n_input_channels=1, num_classes=2),
    "autoencoder": network("AutoEncoder", **FLAT, channels=(4, 8), strides=(2, 2)),
    "vqvae": network("VQVAE", **FLAT, channels=(8, 8), num_res_layers=1, num_res_channels=(8, 8),
                     downsample_parameters=((2, 4, 1, 1), (2, 4, 1, 1)),
                     upsample_parameters=((2, 4, 1, 1, 0), (2, 4, 1, 1, 0)), num_embeddings=8, embedding_dim=4),
    "restormer": network("restormer.Restormer", spatial_dims=2, in_channels=1, out_channels=1, dim=8,
                         num_blocks=(1, 1, 1, 1), heads=(1, 1, 2, 2), num_refinement_blocks=1),
    "quicknat": network("Quicknat", num_classes=2, num_channels=1, num_filters=4),
    "ahnet": network("AHNet", dict(native=(64, 64), others=((64, 96), (128, 64))), layers=(1, 1, 1, 1), spatial_dims=2,
                     in_channels=1, out_channels=2, psp_block_num=2),
    "regressor": network("Regressor", FIXED, in_shape=(1, 32, 32), out_shape=(2,), channels=(4, 8), strides=(2, 2)),
}  # fmt: skip
