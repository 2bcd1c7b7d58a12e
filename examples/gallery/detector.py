"""YOLO11 of ultralytics, from its configuration: images [B, 3, H, W] to boxes and scores [B, 84, boxes]."""

import torch
from ultralytics.nn.tasks import DetectionModel


class Detector(torch.nn.Module):
    """The decoded boxes alone, as its own exporter writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = DetectionModel("yolo11n.yaml", verbose=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.model(image)[0]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Detector().eval()
