"""Opting in as the author of a layer: a method that is `forward` during export only.

run: python examples/optin_decorators.py

The exported graph clips the picture to [0, 1], for a consumer that cannot; PyTorch keeps the raw values.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

import onnxpatch


class Restorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return image + self.net(image)

    @onnxpatch.onnx_forward
    def forward_for_onnx(self, image: Tensor) -> Tensor:
        return self.forward(image).clamp(0, 1)  # inside, self.forward is the one above


def main() -> None:
    torch.manual_seed(0)
    model = Restorer().eval()
    image = torch.rand(1, 3, 16, 16) * 3 - 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "restorer.onnx"
        with onnxpatch.patched(model) as patched:
            for swap in patched.plan.swaps:
                print(f"{swap.path or '(root)'}: {swap.patch.why}")
            torch.onnx.export(model, (image,), path, dynamo=True, input_names=["image"], verbose=False)
        session = onnxruntime.InferenceSession(path)
        found = torch.from_numpy(session.run(None, {"image": image.numpy()})[0])
    with torch.no_grad():
        raw = model(image)
    print(f"PyTorch: {raw.min():.2f} to {raw.max():.2f}; exported graph: {found.min():.2f} to {found.max():.2f}")
    assert raw.min() < 0 and raw.max() > 1
    assert torch.allclose(found, raw.clamp(0, 1), atol=1e-5)


if __name__ == "__main__":
    main()
