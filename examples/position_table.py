"""A model that plain torch.onnx.export gets silently wrong: its position table has a shortcut at its native size.

Exported at 64x64 pixels with height and width declared dynamic, the exporter reports success and keeps the shortcut:
the file then fails at every other size. `python examples/position_table.py` writes that file and the right one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

SIZES = ({0: "B", 2: "H", 3: "W"},)


class Backbone(torch.nn.Module):
    """float32 [B, 3, H, W] in, patch tokens [B, (H / 16) * (W / 16), 8] out."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 16, 16)
        self.positions = torch.nn.Parameter(torch.randn(1, 8, 4, 4))

    def table(self, height: int, width: int) -> torch.Tensor:
        if (height, width) == self.positions.shape[-2:]:  # trained at this size: nothing to do
            return self.positions
        return torch.nn.functional.interpolate(self.positions, size=(height, width), mode="bicubic")

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.patches(image)
        return (features + self.table(*features.shape[-2:])).flatten(2).transpose(1, 2)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Backbone().eval()


def main() -> None:
    import onnxpatch

    folder = Path(tempfile.mkdtemp(prefix="onnxpatch-example-"))
    plain, right = folder / "plain.onnx", folder / "right.onnx"
    example = (torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)),)
    torch.onnx.export(model(), example, str(plain), dynamo=True, dynamic_shapes=SIZES, verbose=False)
    print(onnxpatch.verify(plain, model(), example, dynamic_shapes=SIZES))
    print(onnxpatch.export(model(), example, right, dynamic_shapes=SIZES))


if __name__ == "__main__":
    main()
