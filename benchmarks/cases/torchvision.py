"""torchvision's models that take images of any size, small, with random weights; those of one size, batch dynamic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.case import Case, image

LIBRARIES = ("torchvision",)
LEFT_OUT = {
    "detection (Faster R-CNN, RetinaNet, SSD and relatives)": "take lists of images and end in torchvision's own nms",
    "optical flow and video": "convolutions only, slow to export",
}
WINDOWS = dict(native=(64, 64), others=((64, 96), (72, 88), (96, 128), (60, 44)))
ANY = dict(native=(64, 96), others=((96, 64), (128, 160), (70, 90)))
SWIN = dict(patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=5)
MAXVIT = dict(input_size=(64, 64), stem_channels=8, partition_size=4, block_channels=[8, 16], block_layers=[1, 1],
              head_dim=4, stochastic_depth_prob=0.0, num_classes=5)  # fmt: skip
VIT = dict(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=5)


class _Out(nn.Module):
    """The output of a segmentation model that is not an auxiliary one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)["out"]


def classifier(name: str, sizes: dict[str, Any], **options: Any) -> Callable[[], Case]:
    def build() -> Case:
        from torchvision import models

        return image(getattr(models, name)(**options), **sizes)

    return build


def segmenter(name: str) -> Callable[[], Case]:
    def build() -> Case:
        from torchvision.models import segmentation

        return image(_Out(getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5)), **ANY)

    return build


CASES: dict[str, Callable[[], Case]] = {
    "swin": classifier("SwinTransformer", WINDOWS, **SWIN),
    "swin_v2_t": classifier("swin_v2_t", WINDOWS, num_classes=5),
    "maxvit": classifier("MaxVit", dict(native=(64, 64)), **MAXVIT),
    "vit": classifier("VisionTransformer", dict(native=(32, 32)), **VIT),
    "alexnet": classifier("alexnet", dict(native=(96, 128), others=((128, 96), (160, 160), (100, 90)))),
    "vgg11": classifier("vgg11", ANY),
    "resnet18": classifier("resnet18", ANY, num_classes=5),
    "shufflenet": classifier("shufflenet_v2_x0_5", ANY, num_classes=5),
    "convnext_tiny": classifier("convnext_tiny", ANY, num_classes=5),
    "efficientnet_b0": classifier("efficientnet_b0", ANY, num_classes=5),
    "deeplabv3": segmenter("deeplabv3_mobilenet_v3_large"),
    "lraspp": segmenter("lraspp_mobilenet_v3_large"),
}
